#include "trainer/report/evaluation_file.h"

#include <nlohmann/json.hpp>

#include "core/file.h"
#include "trainer/base/json.h"

namespace trireme::train {
namespace {

nlohmann::json to_json(const Mistake& mistake) {
  nlohmann::json json = {{"index", mistake.index},
                         {"where", mistake.where},
                         {"label", mistake.label},
                         {"predicted", mistake.predicted},
                         {"probability", mistake.probability}};
  if (!mistake.png.empty()) json["png"] = mistake.png;
  return json;
}

}  // namespace

void write_evaluation(const std::filesystem::path& file, const Evaluation& evaluation, int64_t step,
                      int64_t epoch, const std::vector<std::string>& class_names) {
  using Json = nlohmann::json;
  Json json = {
      {"step", step}, {"epoch", epoch}, {"samples", evaluation.samples}, {"loss", evaluation.loss}};
  if (evaluation.details) {
    json["accuracy"] = evaluation.accuracy;
    json["top5"] = evaluation.top5;
    json["classes"] = class_names;
    if (!evaluation.details->confusion.empty()) json["confusion"] = evaluation.details->confusion;
    json["mistakes"] = Json::array();
    for (const Mistake& mistake : evaluation.details->mistakes) {
      json["mistakes"].push_back(to_json(mistake));
    }
  }
  replace_durably(file, json_text(std::move(json)) + "\n");
}

}  // namespace trireme::train
