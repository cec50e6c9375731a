# Inserts the style and the scripts into page.html.
#   cmake -D FOLDER=launch/report -D OUT=report.html -P page.cmake
file(READ ${FOLDER}/page.html html)
file(READ ${FOLDER}/page.css css)
set(js "")
foreach(script chart confusion page)
  file(READ ${FOLDER}/${script}.js text)
  string(APPEND js "${text}")
endforeach()
string(REPLACE "{{css}}" "${css}" html "${html}")
string(REPLACE "{{js}}" "${js}" html "${html}")
file(WRITE ${OUT} "${html}")
