#include "trainer/checkpoint/init_from.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/tokenizers/tokenizer.h"
#include "model/names.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kField = "model.init_from";
constexpr size_t kMaxProblemsShown = 10;

// Returns whether the file stores the dense layers of GPT-2 as [inputs, outputs], as transformers
// does. Some of them are square, but c_attn has three times as many outputs as inputs.
bool has_conv1d_weights(const model::Weights& weights) {
  return std::ranges::any_of(weights, [](const auto& named) {
    const auto& [name, weight] = named;
    return name.ends_with(".attn.c_attn.weight") && weight.shape.rank() == 2 &&
           weight.shape[1] == 3 * weight.shape[0];
  });
}

std::vector<float> transposed(const model::Weight& matrix) {
  const int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  std::vector<float> values;
  values.reserve(matrix.values.size());
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) {
      values.push_back(matrix.values[static_cast<size_t>(row * columns + column)]);
    }
  }
  return values;
}

// Returns "'cat', 'dog', ..." of names that others may have written.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMaxNames = 8;
  std::vector<std::string> shown;
  for (const std::string& name : std::span(names).first(std::min(names.size(), kMaxNames))) {
    shown.push_back(fmt::format("'{}'", printable(name, 60)));
  }
  return fmt::format("{}{}", fmt::join(shown, ", "), names.size() > kMaxNames ? ", ..." : "");
}

// Returns whether the names are only the numbers of the classes, which transformers writes as
// LABEL_0.
bool are_numbers(const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != std::to_string(i) && names[i] != fmt::format("LABEL_{}", i)) return false;
  }
  return true;
}

// A tensor of the network.
struct Wanted {
  Shape shape;
  bool head = false;       // part of the last layer with parameters
  bool positions = false;  // learned positions of tokens
  bool fresh = false;      // newly initialized
};

// Matches the tensors of a file ("theirs") with those of the network ("ours").
class TensorMatcher {
 public:
  // `class_names` are those of the data.
  TensorMatcher(StoredModel stored, const model::Graph& graph,
                const std::vector<std::string>& class_names)
      : theirs_(std::move(stored.weights)),
        their_classes_(std::move(stored.class_names)),
        graph_(graph),
        classes_(class_names),
        conv1d_(has_conv1d_weights(theirs_)) {
    for (const model::Node& node : graph.nodes) {
      if (!node.signature.parameters.empty()) head_ = node.name;
    }
    for (const model::Node& node : graph.nodes) {
      for (const auto& p : node.signature.parameters) {
        const std::string name = model::parameter_name(node, p);
        wanted_[name] = {.shape = p.shape,
                         .head = node.name == head_ && p.tied_to.empty(),
                         .positions = node.layer->reads_tokens() && p.name == "position"};
        if (!p.tied_to.empty()) tied_[node.name + "." + p.name] = name;
      }
      for (const auto& v : node.signature.running_stats) {
        wanted_[node.name + "." + v.name] = {.shape = v.shape, .head = node.name == head_};
      }
    }
  }

  // Fills matched() with the tensors that fit and problems() with the others.
  void run() {
    join_parts();
    find_names();
    check_tied();
    tie_llama_head();
    check_head();
    match_classes();
    check_bert_heads();
    for (const auto& [ours, wanted] : wanted_) {
      const auto found = found_.find(ours);
      if (found == found_.end()) {
        if (wanted.fresh) continue;
        problems_.push_back(
            fmt::format("'{}' is missing{}", ours, printable(did_you_mean(ours, unused_))));
      } else {
        match(ours, wanted.shape, found->second);
      }
    }
    std::vector<std::string> ours;
    for (const auto& [name, wanted] : wanted_) ours.push_back(name);
    for (const std::string& name : unused_) {
      problems_.push_back(
          fmt::format("'{}' is not in the network{}", printable(name), did_you_mean(name, ours)));
    }
  }

  const std::vector<std::string>& problems() const { return problems_; }
  model::Weights& matched() { return matched_; }
  std::string summary(const fs::path& path) const {
    const char* style = style_ == model::NameStyle::kHuggingFace    ? " (Hugging Face names)"
                        : model::has_torchvision_names(graph_.name) ? " (torchvision names)"
                                                                    : "";
    return fmt::format("{} of {} tensors from {}{}{}", matched_.size(), wanted_.size(),
                       path.filename().string(), style, notes_);
  }

 private:
  bool wants(const std::string& name) const {
    return wanted_.contains(name) || tied_.contains(name);
  }

  // Returns the name that one of the guesses has in the network, or nullptr.
  const model::NameGuess* choose(const std::vector<model::NameGuess>& guesses) const {
    const auto found =
        std::ranges::find_if(guesses, [&](const auto& guess) { return wants(guess.name); });
    return found == guesses.end() ? nullptr : &*found;
  }

  // Joins tensors that the file stores separately, such as queries, keys and values, if the network
  // has them as one.
  void join_parts() {
    std::vector<std::string> names;
    for (const auto& [name, weight] : theirs_) names.push_back(name);
    for (const std::string& name : names) {
      const auto joined = model::joined_name(name);
      if (!joined || wants(name) || theirs_.contains(joined->name)) continue;
      if (choose(model::name_guesses(joined->name, head_))) join(*joined);
    }
  }
  void join(const model::JoinedName& joined) {
    Shape shape = theirs_.at(joined.parts[0]).shape;
    if (shape.rank() == 0) return;
    int64_t rows = 0;
    for (const std::string& part : joined.parts) {
      const auto found = theirs_.find(part);
      if (found == theirs_.end() || found->second.shape.rank() != shape.rank()) return;
      shape[0] = found->second.shape[0];
      if (!(found->second.shape == shape)) return;
      rows += shape[0];
    }
    shape[0] = rows;
    const std::vector<model::Part> wanted = model::parts_of(joined.name, shape);
    const auto has_rows = [&](const model::Part& part) {
      return theirs_.at(part.name).shape[0] == part.rows;
    };
    if (wanted.empty() || !std::ranges::all_of(wanted, has_rows)) return;
    model::Weight whole{shape, {}};
    for (const model::Part& part : wanted) {
      const std::vector<float> values = std::move(theirs_.extract(part.name).mapped().values);
      whole.values.insert(whole.values.end(), values.begin(), values.end());
    }
    theirs_[joined.name] = std::move(whole);
    style_ = model::NameStyle::kHuggingFace;
  }

  // Exact matches of names have priority over guesses.
  void find_names() {
    std::vector<std::string> unmatched;
    for (const auto& [theirs, weight] : theirs_) {
      if (model::is_bookkeeping(theirs)) continue;
      if (wanted_.contains(theirs)) {
        found_[theirs] = theirs;
      } else {
        unmatched.push_back(theirs);
      }
    }
    for (const std::string& theirs : unmatched) {
      const auto guesses = model::name_guesses(theirs, head_);
      const auto guess = std::ranges::find_if(guesses, [&](const model::NameGuess& g) {
        return wants(g.name) && !found_.contains(g.name);
      });
      if (guess == guesses.end()) {
        if (!is_copy(theirs, choose(guesses))) unused_.push_back(theirs);
        continue;
      }
      found_[guess->name] = theirs;
      if (guess->style == model::NameStyle::kHuggingFace) style_ = guess->style;
    }
  }

  // Returns whether the file has this tensor under another name, too.
  bool is_copy(const std::string& theirs, const model::NameGuess* guess) const {
    if (!guess) return false;
    const auto found = found_.find(guess->name);
    return found != found_.end() && theirs_.at(found->second).values == theirs_.at(theirs).values;
  }

  // A file may store tied weights under either of their names, or under both.
  void check_tied() {
    for (const auto& [name, ours] : tied_) {
      const auto found = found_.extract(name);
      if (found.empty()) continue;
      const std::string& second = found.mapped();
      const std::string& first = found_.try_emplace(ours, second).first->second;
      if (theirs_.at(first).values == theirs_.at(second).values) continue;
      problems_.push_back(
          fmt::format("'{}' differs from '{}', but the network has one tensor for both",
                      printable(second), printable(first)));
    }
  }

  // transformers leaves out the last layer of a Llama if its weights are those of the embedding.
  void tie_llama_head() {
    const std::string head = head_ + ".weight";
    const auto embedding = found_.find("embed_tokens.weight");
    if (!model::is_llama(graph_.name) || found_.contains(head) || embedding == found_.end()) return;
    notes_ += fmt::format("; {} begins with the weights of embed_tokens", head_);
    theirs_[head] = theirs_.at(embedding->second);
    found_[head] = head;
  }

  // Newly initializes the last layer if the file does not have it, or has it with another number of
  // outputs.
  void check_head() {
    const auto ours = wanted_.find(head_ + ".weight");
    if (ours == wanted_.end()) return;
    const auto theirs = found_.find(ours->first);
    if (theirs == found_.end()) {
      notes_ += fmt::format("; {} is not in the file and is newly initialized", head_);
    } else {
      const Shape& shape = theirs_.at(theirs->second).shape;
      if (shape.rank() == 0 || shape[0] == ours->second.shape[0]) return;
      Shape same = shape;
      same[0] = ours->second.shape[0];
      if (!fits(same, ours->second.shape)) return;
      notes_ += fmt::format("; {} is newly initialized ({} -> {} {})", head_, shape[0], same[0],
                            graph_.input.classes > 0 ? "classes" : "outputs");
    }
    for (auto& [name, wanted] : wanted_) wanted.fresh = wanted.head;
    std::erase_if(found_, [&](const auto& found) { return wanted_.at(found.first).head; });
  }

  // Finds the outputs of the file for the classes of the data, by their names.
  void match_classes() {
    if (classes_.empty() || their_classes_.empty() || classes_ == their_classes_) return;
    const model::ModelInput& input = graph_.input;
    if (input.target.dtype == DType::kI32 && input.target.shape.rank() > 0) {
      return match_vocabulary();
    }
    if (!found_.contains(head_ + ".weight")) return;
    const bool has_names = !are_numbers(classes_), they_have_names = !are_numbers(their_classes_);
    if (has_names && they_have_names) return order_outputs();
    if (!has_names && !they_have_names) return;
    notes_ += fmt::format("; {} does not name the classes, so the outputs are taken in order: {}",
                          has_names ? "the file" : "the data",
                          listed(has_names ? classes_ : their_classes_));
  }
  void order_outputs() {
    const auto outputs = static_cast<size_t>(wanted_.at(head_ + ".weight").shape[0]);
    for (const std::string& name : classes_) {
      const auto found = std::ranges::find(their_classes_, name);
      if (found == their_classes_.end() || their_classes_.size() > outputs) {
        problems_.push_back(fmt::format(
            "class '{}' of the data is not a name of one of its {} outputs, which are {}; the data "
            "has {}. Correct the names (id2label in config.json), or remove them there to take the "
            "outputs in order",
            printable(name, 60), outputs, listed(their_classes_), listed(classes_)));
        return order_.clear();
      }
      order_.push_back(static_cast<size_t>(found - their_classes_.begin()));
    }
    for (size_t i = 0; i < outputs; ++i) {  // those of other classes
      if (std::ranges::find(order_, i) == order_.end()) order_.push_back(i);
    }
    notes_ += fmt::format("; the outputs of {} are put in the order of the data's classes", head_);
  }
  // The names are characters, which the embedding reads, too, so another order of outputs would not
  // be enough. A config.json does not name tokens.
  void match_vocabulary() {
    if (are_numbers(their_classes_) || their_classes_.size() != classes_.size()) return;
    problems_.push_back(fmt::format(
        "its tokens are {}, those of the data {}; the text must have the same characters",
        listed(their_classes_), listed(classes_)));
  }

  // BERT is pretrained with other heads than it is fine-tuned with: those of the file that the
  // network has not are left out, and those of the network that the file has not are new.
  void check_bert_heads() {
    if (!graph_.name.starts_with("bert")) return;
    for (const std::string_view head : {"pooler.", "cls."}) {
      const auto in_head = [&](const auto& named) {
        return model::bert_head_of(named.first) == head;
      };
      const bool ours = std::ranges::any_of(wanted_, in_head);
      const bool theirs = std::ranges::any_of(theirs_, in_head);
      if (ours && !theirs) {
        notes_ += fmt::format("; {}* is not in the file and is newly initialized", head);
        for (auto& [name, wanted] : wanted_) wanted.fresh |= model::bert_head_of(name) == head;
      } else if (theirs && !ours) {
        notes_ += fmt::format("; {}* of the file is not used", head);
        std::erase_if(unused_, [&](const auto& name) { return model::bert_head_of(name) == head; });
      }
    }
  }

  // Takes the values of a tensor of the file if its shape fits.
  void match(const std::string& ours, const Shape& shape, const std::string& theirs) {
    model::Weight& weight = theirs_.at(theirs);
    const bool transposes = conv1d_ && shape.rank() == 2 && model::is_conv1d_weight(ours);
    const Shape needed = transposes ? Shape{shape[1], shape[0]} : shape;
    if (wanted_.at(ours).positions) use_first_rows(weight, needed);
    if (!fits(weight.shape, needed)) {
      problems_.push_back(fmt::format("'{}' is {}, but the network needs {}", printable(theirs),
                                      weight.shape.to_string(), needed.to_string()));
    } else {
      if (transposes) weight.values = transposed(weight);
      if (wanted_.at(ours).head && !order_.empty()) weight.values = in_order(weight.values);
      matched_[ours] = {shape, std::move(weight.values)};
    }
  }

  // Returns the values with the rows of the last layer in order_.
  std::vector<float> in_order(const std::vector<float>& values) const {
    const auto width = static_cast<int64_t>(values.size() / order_.size());
    std::vector<float> ordered;
    for (const size_t row : order_) {
      const auto begin = values.begin() + static_cast<int64_t>(row) * width;
      ordered.insert(ordered.end(), begin, begin + width);
    }
    return ordered;
  }

  // The positions of a model that was trained with longer samples are those of the network and
  // more.
  void use_first_rows(model::Weight& positions, const Shape& needed) {
    const Shape& shape = positions.shape;
    if (shape.rank() != 2 || shape[1] != needed[1] || shape[0] <= needed[0]) return;
    notes_ += fmt::format("; the first {} of {} positions", needed[0], shape[0]);
    positions.shape = needed;
    positions.values.resize(static_cast<size_t>(needed.elements()));
  }

  // A dense layer may be stored as the equivalent convolution, and a vector or a matrix as a tensor
  // with dimensions of 1 in front.
  static bool fits(const Shape& theirs, const Shape& ours) {
    if (theirs == ours) return true;
    if (theirs.rank() == 3 && theirs[0] == 1 && (ours.rank() == 1 || ours.rank() == 2)) {
      return theirs[2] == ours[ours.rank() - 1] && theirs.elements() == ours.elements();
    }
    return theirs.rank() == 4 && ours.rank() == 2 && theirs[0] == ours[0] &&
           theirs.elements() == ours.elements();
  }

  model::Weights theirs_;
  std::vector<std::string> their_classes_;
  const model::Graph& graph_;
  const std::vector<std::string>& classes_;
  bool conv1d_;  // dense layers of GPT-2 are stored as [inputs, outputs]
  std::string head_;
  std::map<std::string, Wanted> wanted_;      // by our names
  std::map<std::string, std::string> tied_;   // the other name of a tied tensor to our name
  std::map<std::string, std::string> found_;  // our name to theirs
  std::vector<std::string> unused_;           // their names
  std::vector<size_t> order_;                 // their output of each of ours; empty if the same
  std::string notes_;                         // text for the summary
  model::NameStyle style_ = model::NameStyle::kTorchvision;
  model::Weights matched_;
  std::vector<std::string> problems_;
};

void check_finite(const fs::path& path, const model::Weights& weights) {
  for (const auto& [name, weight] : weights) {
    const auto found =
        std::ranges::find_if(weight.values, [](float value) { return !std::isfinite(value); });
    if (found == weight.values.end()) continue;
    throw DataError(path.string(),
                    fmt::format("value {} of {} is {}; "
                                "a network with weights that are not finite cannot be trained",
                                found - weight.values.begin(), name, *found));
  }
}

}  // namespace

InitialValues read_initial_values(StoredModel stored, const model::Graph& graph,
                                  const std::vector<std::string>& class_names) {
  const fs::path path = stored.path;
  TensorMatcher matcher(std::move(stored), graph, class_names);
  matcher.run();
  const std::vector<std::string>& problems = matcher.problems();
  if (!problems.empty()) {
    const size_t shown = std::min(problems.size(), kMaxProblemsShown);
    std::string more;
    if (problems.size() > shown) more = fmt::format("\n  and {} more", problems.size() - shown);
    throw ConfigError(
        kField, fmt::format("{} does not fit the network:\n  {}{}", path.string(),
                            fmt::join(problems.begin(), problems.begin() + shown, "\n  "), more));
  }
  InitialValues initial{{}, matcher.summary(path)};
  initial.weights = std::move(matcher.matched());
  check_finite(path, initial.weights);
  return initial;
}

InitialValues read_initial_values(StoredModel stored, const Config& config,
                                  const model::Graph& graph, const data::Dataset& training) {
  try {
    std::string note;
    if (stored.description) {
      const NetworkConfig network = model::network_of(config.run.model(), graph.input);
      const Shape& sample = graph.input.input.shape;
      note = stored.description->compare(network, sample.rank() == 1 ? sample[0] : 0,
                                         config.run.model().has_zoo());
    }
    const auto tokenizer = training.tokenizer();
    if (tokenizer && !stored.tokenizer.empty() && stored.tokenizer != tokenizer->identity()) {
      note = fmt::format("its tokenizer was {}, that of the data is {}", stored.tokenizer,
                         tokenizer->identity());
    }
    InitialValues initial = read_initial_values(std::move(stored), graph, training.class_names());
    if (!note.empty()) initial.summary += "; " + note;
    return initial;
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

void load_initial_values(const InitialValues& initial, const StateArrays& state) {
  for (const auto& array : state.model()) {
    for (const auto& tensor : array.tensors) {
      const auto found = initial.weights.find(tensor.name);
      if (found != initial.weights.end() && !array.is_distributed()) {
        state.put(tensor, found->second.values);
      }
    }
  }
}

}  // namespace trireme::train
