#include "trainer/report/evaluation_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "core/file.h"
#include "trainer/base/json.h"
#include "trainer/report/record_fields.h"

namespace trireme::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson to_json(const Mistake& mistake) {
  OrderedJson json = {{"index", mistake.index},
                      {"where", mistake.where},
                      {"label", mistake.label},
                      {"predicted", mistake.predicted},
                      {"probability", mistake.probability}};
  if (!mistake.png.empty()) json["png"] = mistake.png;
  return json;
}

OrderedJson to_json(std::span<const ClassScores> classes) {
  OrderedJson list = OrderedJson::array();
  for (const ClassScores& of_class : classes) {
    list.push_back({{"support", of_class.support},
                    {"predicted", of_class.predicted},
                    {"true_positives", of_class.true_positives},
                    {"precision", of_class.precision()},
                    {"recall", of_class.recall()},
                    {"f1", of_class.f1()}});
  }
  return list;
}

OrderedJson to_json(std::span<const OutputScores> outputs, const std::vector<std::string>& names) {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < std::min(outputs.size(), kMaxListedOutputs); ++i) {
    OrderedJson output = OrderedJson::object();
    if (i < names.size()) output["name"] = names[i];
    output["mae"] = outputs[i].mae;
    output["rmse"] = outputs[i].rmse;
    output["r2"] = outputs[i].r2 ? OrderedJson(*outputs[i].r2) : OrderedJson();
    list.push_back(std::move(output));
  }
  return list;
}

}  // namespace

void write_evaluation(const std::filesystem::path& file, const Evaluation& evaluation, int64_t step,
                      int64_t epoch, const std::vector<std::string>& names) {
  OrderedJson json = {{"step", step}, {"epoch", epoch}, {"samples", evaluation.samples}};
  put_metrics(json, "", evaluation.metrics);
  if (!evaluation.outputs.empty()) json["outputs"] = to_json(evaluation.outputs, names);
  if (!evaluation.classes.empty() || evaluation.details) json["classes"] = names;
  if (!evaluation.classes.empty()) json["per_class"] = to_json(evaluation.classes);
  if (evaluation.details) {
    if (!evaluation.details->confusion.empty()) json["confusion"] = evaluation.details->confusion;
    json["mistakes"] = OrderedJson::array();
    for (const Mistake& mistake : evaluation.details->mistakes) {
      json["mistakes"].push_back(to_json(mistake));
    }
  }
  replace_durably(file, json_text(std::move(json)) + "\n");
}

}  // namespace trireme::train
