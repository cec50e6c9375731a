#include "trainer/config/config_text.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/deprecated_fields.h"

namespace trireme::train {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::ArrayInputStream;
using google::protobuf::io::Tokenizer;

class IgnoreErrors final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

// The tokens of a text, which may be invalid.
class Tokens {
 public:
  explicit Tokens(const std::string& text)
      : stream_(text.data(), static_cast<int>(text.size())), tokenizer_(&stream_, &ignore_) {
    tokenizer_.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
    tokenizer_.set_allow_f_after_float(true);
  }
  // Returns the next token, or null at the end. It is valid until the next call.
  const Tokenizer::Token* next() { return tokenizer_.Next() ? &tokenizer_.current() : nullptr; }

 private:
  ArrayInputStream stream_;
  IgnoreErrors ignore_;
  Tokenizer tokenizer_;
};

class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (!message_) {
      line_ = line + 1;
      column_ = column + 1;
      message_ = message;
    }
  }
  int line_ = 0;
  int column_ = 0;
  std::optional<std::string> message_;
};

// Finds the path and line of each field by following the nesting of braces.
class PlaceScanner {
 public:
  explicit PlaceScanner(const Descriptor* root) { frames_.push_back({"", root, {}}); }

  void token(const Tokenizer::Token& token) {
    const std::string& text = token.text;
    const bool in_list = !open_.empty() && open_.back() == '[';
    if (token.type == Tokenizer::TYPE_IDENTIFIER && previous_ != ":" && !in_list) {
      field(text, token.line + 1);
    } else if (text == "{" || text == "<") {
      open_.push_back('{');
      frames_.push_back({places.empty() ? "" : current_.path + ".", submessage(), {}});
    } else if (text == "[") {
      open_.push_back('[');
    } else if ((text == "}" || text == ">" || text == "]") && !open_.empty()) {
      if (open_.back() == '{') frames_.pop_back();
      open_.pop_back();
    }
    previous_ = text;
  }

  // The field that was found last; the following value belongs to it.
  const FieldPlace& current() const { return current_; }

  std::vector<FieldPlace> places;

 private:
  struct Frame {
    std::string prefix;
    const Descriptor* message;
    std::map<std::string, int> count;
  };

  void field(const std::string& name, int line) {
    Frame& frame = frames_.back();
    const FieldDescriptor* known = frame.message ? frame.message->FindFieldByName(name) : nullptr;
    std::string path = frame.prefix + name;
    if (known && known->is_repeated()) path += fmt::format("[{}]", frame.count[name]++);
    current_ = {path, name, line, frame.message};
    places.push_back(current_);
  }

  const Descriptor* submessage() const {
    if (!current_.message) return nullptr;
    const FieldDescriptor* known = current_.message->FindFieldByName(current_.name);
    return known ? known->message_type() : nullptr;
  }

  std::vector<Frame> frames_;
  std::string open_;
  std::string previous_;
  FieldPlace current_;
};

// Returns whether a number other than 0 would become 0, or a finite one infinite, as a T.
template <class T>
bool is_out_of_range(const Tokenizer::Token& token) {
  if (token.type != Tokenizer::TYPE_FLOAT && token.type != Tokenizer::TYPE_INTEGER) return false;
  T value{};
  const char* const begin = token.text.data();
  return std::from_chars(begin, begin + token.text.size(), value).ec ==
         std::errc::result_out_of_range;
}

// Throws ConfigError if the text nests messages so deeply, or has so long names or so many
// messages, that reading it or describing an error would take forever. Returns whether a number is
// outside the range of float.
bool check_sizes(const std::string& text, const std::string& file) {
  constexpr size_t kMaxMessages = 200000;  // ten for each layer of the largest network
  constexpr size_t kMaxDepth = 100;
  constexpr size_t kMaxName = 1000;
  Tokens tokens(text);
  size_t depth = 0, messages = 0;
  bool out_of_range = false;
  while (const Tokenizer::Token* const next = tokens.next()) {
    const Tokenizer::Token& token = *next;
    const auto where = [&] { return fmt::format("{}:{}", file, token.line + 1); };
    if (token.text == "{" || token.text == "<") {
      ++depth;
      if (++messages > kMaxMessages) {
        throw ConfigError(where(), fmt::format("more than {} messages", kMaxMessages));
      }
    }
    if ((token.text == "}" || token.text == ">") && depth > 0) --depth;
    if (depth > kMaxDepth) {
      throw ConfigError(where(), fmt::format("more than {} messages are nested", kMaxDepth));
    }
    if (token.type == Tokenizer::TYPE_IDENTIFIER && token.text.size() > kMaxName) {
      throw ConfigError(where(), fmt::format("a name has {} characters; at most {} are allowed",
                                             token.text.size(), kMaxName));
    }
    if (is_out_of_range<float>(token)) out_of_range = true;
  }
  return out_of_range;
}

// Throws ConfigError if the parser takes a number for 0 or infinity that is not.
void check_numbers(const std::string& text, const std::string& file, const Descriptor* root) {
  Tokens tokens(text);
  PlaceScanner scanner(root);
  while (const Tokenizer::Token* const next = tokens.next()) {
    const Tokenizer::Token& token = *next;
    scanner.token(token);
    const FieldPlace& place = scanner.current();
    if (!is_out_of_range<float>(token) || !place.message) continue;
    const FieldDescriptor* field = place.message->FindFieldByName(place.name);
    const auto type = field ? field->cpp_type() : FieldDescriptor::CPPTYPE_MESSAGE;
    if (type == FieldDescriptor::CPPTYPE_FLOAT ||
        (type == FieldDescriptor::CPPTYPE_DOUBLE && is_out_of_range<double>(token))) {
      throw ConfigError(fmt::format("{}:{}: {}", file, token.line + 1, place.path),
                        fmt::format("{} is out of range", token.text));
    }
  }
}

// Returns the quoted text that follows `lead` in the message; empty if there is none.
std::string quoted_after(const std::string& message, const std::string& lead) {
  const size_t at = message.find(lead + "\"");
  if (at == std::string::npos) return "";
  const size_t begin = at + lead.size() + 1;
  return message.substr(begin, message.find('"', begin) - begin);
}

// Returns the field that the parser's message names; empty if it names none.
std::string named_field(const std::string& message) {
  const std::string missing = quoted_after(message, "has no field named ");
  return missing.empty() ? quoted_after(message, "ield ") : missing;
}

// Rewords the parser's message so that it fits after a field path.
std::string explain(const std::string& message, const FieldPlace& place, const Descriptor* root) {
  if (message.find("has no field named") != std::string::npos && place.message) {
    const size_t parent = place.path.size() - std::min(place.path.size(), place.name.size() + 1);
    return "no such field" +
           suggest_field(root, place.path.substr(0, parent), place.message, place.name);
  }
  const FieldDescriptor* field =
      place.message ? place.message->FindFieldByName(place.name) : nullptr;
  if (message.starts_with("Unknown enumeration value") && field && field->enum_type()) {
    const std::string value = quoted_after(message, "value of ");
    const auto names = value_names(field->enum_type());
    return fmt::format("'{}' is not one of {}{}", value, fmt::join(names, ", "),
                       did_you_mean(value, names));
  }
  std::string text = message;
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

std::vector<FieldPlace> field_places(const std::string& text, const Descriptor* root, int last_line,
                                     int last_column) {
  Tokens tokens(text);
  PlaceScanner scanner(root);
  while (const Tokenizer::Token* const next = tokens.next()) {
    const Tokenizer::Token& token = *next;
    const std::pair place(token.line + 1, token.column + 1);
    if (last_line > 0 && place > std::pair(last_line, last_column)) break;
    scanner.token(token);
  }
  return std::move(scanner.places);
}

std::string values_text(const google::protobuf::Message& message, const FieldDescriptor* field) {
  std::string text;
  for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
    std::string value;
    google::protobuf::TextFormat::PrintFieldValueToString(message, field, i, &value);
    text += (i == 0 ? "" : ", ") + value;
  }
  return text;
}

std::vector<std::string> field_names(const Descriptor* message) {
  std::vector<std::string> names;
  for (int i = 0; i < message->field_count(); ++i) {
    if (!is_deprecated(message->field(i))) names.push_back(message->field(i)->name());
  }
  return names;
}

std::vector<std::string> value_names(const google::protobuf::EnumDescriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->value_count(); ++i) names.push_back(type->value(i)->name());
  return names;
}

std::vector<std::string> parse_text(const std::string& text, const std::string& file,
                                    google::protobuf::Message& message) {
  const bool out_of_range = check_sizes(text, file);
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  // Parsing directly into the message would allow a field to be set twice in the text.
  const std::unique_ptr<google::protobuf::Message> parsed(message.New());
  if (parser.ParseFromString(text, parsed.get())) {
    if (out_of_range) check_numbers(text, file, message.GetDescriptor());
    std::vector<std::string> warnings = replace_deprecated_fields(*parsed, text, file);
    message.MergeFrom(*parsed);
    return warnings;
  }
  const std::string what = error.message_.value_or("cannot be read");

  // The parser may already be at the next token, so the place of the field that its message names
  // is preferred.
  FieldPlace place;
  bool found = false;
  const std::string named = named_field(what);
  for (const FieldPlace& candidate :
       field_places(text, message.GetDescriptor(), error.line_, error.column_)) {
    if (found && candidate.name != named) continue;
    place = candidate;
    found = candidate.name == named;
  }
  const int line = found ? place.line : error.line_;
  const std::string where = place.path.empty() ? fmt::format("{}:{}", file, line)
                                               : fmt::format("{}:{}: {}", file, line, place.path);
  throw ConfigError(where, explain(what, place, message.GetDescriptor()));
}

}  // namespace trireme::train
