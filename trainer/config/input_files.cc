#include "trainer/config/input_files.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/files/file_names.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Calls take(text) for the values and the defaults of all strings in the message and in the
// messages that are set in it.
template <class Take>
void each_string(const Message& message, Take& take) {
  const auto* reflection = message.GetReflection();
  const auto* type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const int size = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int k = 0; k < size; ++k) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        if (field->is_repeated()) {
          each_string(reflection->GetRepeatedMessage(message, field, k), take);
        } else if (reflection->HasField(message, field)) {
          each_string(reflection->GetMessage(message, field), take);
        }
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        take(field->is_repeated() ? reflection->GetRepeatedString(message, field, k)
                                  : reflection->GetString(message, field));
      }
    }
  }
}

// Returns the files that a name or a pattern in `data` may stand for.
std::vector<std::string> files_of(const std::string& root, const std::string& name) {
  if (name.find_first_of("*?[{") == name.npos) {
    const std::string path = (fs::path(root) / name).string();
    return {path, path + ".gz"};
  }
  google::protobuf::RepeatedPtrField<std::string> patterns;
  patterns.Add()->assign(name);
  try {
    return data::expand_names(root, patterns, "data");
  } catch (const Error&) {
    return {};  // it is not a pattern, or opening the data reports the error
  }
}

// Returns whether the file is in the folder and has one of the endings.
bool is_in(const fs::path& folder, const fs::path& path,
           std::initializer_list<std::string_view> endings) {
  const std::string ending = upper(path.extension().string());
  if (std::ranges::find(endings, ending) == endings.end()) return false;
  const fs::path within =
      fs::weakly_canonical(path).lexically_relative(fs::weakly_canonical(folder));
  return !within.empty() && *within.begin() != "..";
}

}  // namespace

std::string input_at(const fs::path& path, const RunConfig& config) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return {};
  std::string found;
  const auto compare = [&](const std::string& file) {
    if (fs::equivalent(file, path, none)) found = file;
    // Images, texts and the files of models.
    const bool in_folder = fs::is_directory(file, none) &&
                           is_in(file, path, {".PNG", ".JPG", ".JPEG", ".TXT", ".SAFETENSORS"});
    if (in_folder) found = path.string();
  };
  const auto take = [&](const std::string& text) {
    if (text.empty() || text == config.data().root()) return;
    for (const std::string& file : files_of(config.data().root(), text)) compare(file);
  };
  each_string(config.data(), take);
  for (const std::string& file : {config.model().onnx(), config.model().init_from()}) {
    if (!file.empty()) compare(file);
  }
  return found;
}

}  // namespace trireme::train
