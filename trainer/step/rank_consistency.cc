#include "trainer/step/rank_consistency.h"

#include <elf.h>
#include <fmt/format.h>
#include <google/protobuf/text_format.h>
#include <link.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>

#include "comm/control.h"
#include "core/alignment.h"
#include "core/installation.h"
#include "core/text.h"
#include "core/version.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kDifferencesShown = 10;

// Appends every field that is set, named by its path.
void add_fields(const Message& message, const std::string& path, RankProperties& properties) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  if (fields.empty()) properties.emplace_back(path, "{}");
  for (const FieldDescriptor* field : fields) {
    const bool repeated = field->is_repeated();
    const int count = repeated ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const std::string name = fmt::format("{}{}{}{}", path, path.empty() ? "" : ".", field->name(),
                                           repeated ? fmt::format("[{}]", i) : "");
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        add_fields(repeated ? reflection.GetRepeatedMessage(message, field, i)
                            : reflection.GetMessage(message, field),
                   name, properties);
        continue;
      }
      std::string value;
      google::protobuf::TextFormat::PrintFieldValueToString(message, field, repeated ? i : -1,
                                                            &value);
      properties.emplace_back(name, value);
    }
  }
}

void add_form(const std::string& part, const data::Dataset& samples, RankProperties& properties) {
  const data::SampleSpec& spec = samples.spec();
  properties.emplace_back("number of " + part + " samples", std::to_string(samples.size()));
  properties.emplace_back("input of " + part + " samples", spec.input.to_string());
  properties.emplace_back("target of " + part + " samples", spec.target.to_string());
  properties.emplace_back("classes of " + part + " samples", std::to_string(spec.classes));
  properties.emplace_back("normalization of " + part + " samples",
                          fmt::format("{} [{}] [{}]", spec.scale, fmt::join(spec.mean, ", "),
                                      fmt::join(spec.stddev, ", ")));
}

void add_fingerprint(const std::string& part, const data::Fingerprint& fingerprint,
                     RankProperties& properties) {
  const auto add = [&](const char* what, uint64_t sum) {
    properties.emplace_back(fmt::format("checksum of {} of {} samples", what, part),
                            fmt::format("{:016x}", sum));
  };
  add("inputs", fingerprint.checksums.inputs);
  add("targets", fingerprint.checksums.targets);
  properties.emplace_back("columns of " + part + " samples",
                          printable(fmt::format("{}", fmt::join(fingerprint.columns, ", "))));
  properties.emplace_back("tokenizer of " + part + " samples", printable(fingerprint.tokenizer));
}

// Returns a text that is equal for ranks that read the same files. The ranks of a host may be in
// containers, and may have different working folders and paths.
std::string file_view(const comm::Placement& placement, const DataConfig& config) {
  std::error_code none;
  struct stat top {};
  ::stat("/", &top);
  return fmt::format("{} {} {}:{} {} {} {}", placement.host,
                     fs::read_symlink("/proc/self/ns/mnt", none).string(), top.st_dev, top.st_ino,
                     fs::current_path(none).string(), find_shared(config.root()),
                     config.ShortDebugString());
}

std::string to_text(const RankProperties& properties) {
  std::string text;
  for (const auto& [name, value] : properties) text += name + '\t' + value + '\n';
  return text;
}

RankProperties from_text(const std::string& text) {
  RankProperties properties;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t tab = line.find('\t');
    properties.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  return properties;
}

// Returns a line for each property in which another rank differs from the first one, called
// `name_0`.
std::vector<std::string> differences(const RankProperties& rank_0, const std::string& name_0,
                                     const RankProperties& other) {
  std::vector<std::string> lines;
  std::map<std::string, std::string> values(other.begin(), other.end());
  for (const auto& [name, value] : rank_0) {
    const auto found = values.extract(name);
    if (found && found.mapped() == value) continue;
    lines.push_back(fmt::format("{} is {}, but {} on rank {}", name,
                                found ? found.mapped() : "not set", value, name_0));
  }
  for (const auto& [name, value] : values) {
    lines.push_back(fmt::format("{} is {}, but not set on rank {}", name, value, name_0));
  }
  if (lines.size() > kDifferencesShown) {
    const size_t more = lines.size() - kDifferencesShown;
    lines.resize(kDifferencesShown);
    lines.push_back(fmt::format("and {} more", more));
  }
  return lines;
}

// Returns the build id in an ELF note segment, or "". A note is a header, a name and a description,
// each aligned to `alignment`.
std::string build_id_in(const char* notes, size_t bytes, size_t alignment) {
  for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof note);
    const size_t name = at + sizeof note;
    const size_t description = round_up(name + note.n_namesz, alignment);
    if (note.n_type == NT_GNU_BUILD_ID && std::strcmp(notes + name, ELF_NOTE_GNU) == 0) {
      const auto* begin = reinterpret_cast<const unsigned char*>(notes + description);
      return fmt::format("{:02x}", fmt::join(begin, begin + note.n_descsz, ""));
    }
    at = round_up(description + note.n_descsz, alignment);
  }
  return {};
}

}  // namespace

std::string build_id() {
  std::string id;
  // The first object is the program itself.
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_NOTE) continue;
          const auto* notes = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
          const std::string found =
              build_id_in(notes, segment.p_memsz, std::max<size_t>(4, segment.p_align));
          if (!found.empty()) *static_cast<std::string*>(result) = found;
        }
        return 1;
      },
      &id);
  return id;
}

RankProperties program_properties(const RunConfig& config) {
  RunConfig common = config;
  common.clear_run_dir();
  common.mutable_data()->clear_root();
  common.mutable_data()->clear_threads();
  common.mutable_data()->clear_prefetch();
  common.mutable_train()->clear_threads();
  RankProperties properties{{"trireme", version()}, {"the program's build id", build_id()}};
  add_fields(common, "", properties);
  return properties;
}

RankProperties network_properties(const Device& device, const model::Graph& graph) {
  RankProperties properties{{"device", device.kind() == DeviceKind::kCpu ? "a CPU" : "a GPU"}};
  int64_t count = 0;
  for (const model::Node& node : graph.nodes) {
    for (const auto& parameter : node.signature.parameters) {
      properties.emplace_back(node.name + "." + parameter.name, parameter.shape.to_string());
      count += parameter.shape.elements();
    }
  }
  properties.emplace_back("number of parameters", std::to_string(count));
  return properties;
}

RankProperties layout_properties(const model::Parameters& parameters) {
  RankProperties properties;
  for (const model::Parameter& parameter : parameters.all) {
    properties.emplace_back("layout of " + parameter.name,
                            fmt::format("{} at {}", parameter.spec.to_string(), parameter.begin));
  }
  return properties;
}

void require_same_properties(comm::Communicator& communicator, const RankProperties& own,
                             ExitCode code) {
  const std::string text = to_text(own);
  const std::string hash = fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
  const auto hashes = all_gather(communicator, hash);
  if (std::ranges::all_of(hashes, [&](const auto& each) { return each == hashes[0]; })) return;
  const auto texts = all_gather(communicator, text);
  std::map<std::string, std::vector<int>> others;
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[0]) others[texts[rank]].push_back(static_cast<int>(rank));
  }
  const auto first =
      std::ranges::min_element(others, {}, [](const auto& group) { return group.second.front(); });
  const comm::Group& group = communicator.placement().group;
  const auto name = [&](int rank) {
    return communicator.ledger().with_role(group.world_rank(rank));
  };
  std::vector<std::string> ranks;
  for (const int rank : first->second) ranks.push_back(name(rank));
  const bool one = ranks.size() == 1;
  const auto lines = differences(from_text(texts[0]), name(0), from_text(first->first));
  const char* const separator = lines.size() == 1 ? " " : "\n  ";
  throw comm::AgreedError(
      fmt::format("{}rank{} {} differ{} from rank {}:{}{}",
                  code == ExitCode::kBadData ? "the ranks do not see the same data: " : "",
                  one ? "" : "s", fmt::join(ranks, ", "), one ? "s" : "", name(0), separator,
                  fmt::join(lines, separator)),
      code, group.world_rank(first->second.front()));
}

std::vector<data::Fingerprint> require_same_data(comm::Communicator& communicator,
                                                 const DataConfig& config, const DataParts& parts) {
  const auto views = all_gather(communicator, file_view(communicator.placement(), config));
  const auto own = static_cast<size_t>(communicator.rank());
  const auto reader = static_cast<size_t>(std::ranges::find(views, views[own]) - views.begin());
  std::vector<data::Fingerprint> fingerprints;
  RankProperties properties, read;
  comm::together(communicator, [&] {
    for (const auto& [part, samples] : parts) {
      add_form(part, *samples, properties);
      if (reader != own) continue;
      fingerprints.push_back(data::fingerprint_of(*samples));
      add_fingerprint(part, fingerprints.back(), read);
    }
  });
  const auto texts = all_gather(communicator, to_text(read));
  const RankProperties same = from_text(texts[reader]);
  properties.insert(properties.end(), same.begin(), same.end());
  require_same_properties(communicator, properties, ExitCode::kBadData);
  return fingerprints;
}

}  // namespace trireme::train
