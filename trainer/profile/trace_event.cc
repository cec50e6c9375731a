#include "trainer/profile/trace_event.h"

#include <fmt/format.h>

namespace trireme::train {
namespace {

using Json = nlohmann::json;

// Formats microseconds, the unit of the format, without rounding.
std::string microseconds(int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

std::string metadata_event(const RankTrace& trace, int thread, const char* name, const Json& args) {
  return Json{{"ph", "M"},     {"name", name}, {"pid", trace.rank},
              {"tid", thread}, {"ts", 0},      {"args", args}}
      .dump();
}

// Returns the beginning of an event, up to the first value that differs between events of a
// descriptor.
std::string beginning(const RankTrace& trace, const EventDescriptor& descriptor) {
  std::string text = fmt::format(R"({{"ph":"X","pid":{},"name":{},"cat":{},"args":{{)", trace.rank,
                                 Json(descriptor.name).dump(), Json(descriptor.category).dump());
  for (const auto& [key, value] : descriptor.args.items()) {
    text += fmt::format("{}:{},", Json(key).dump(), value.dump());
  }
  return text + Json(descriptor.number).dump();
}

}  // namespace

std::string to_text(const RankTrace& trace) {
  Json json{{"rank", trace.rank}, {"process", trace.process}};
  for (const auto& each : trace.tracks) json["tracks"].push_back({each.id, each.name});
  for (const EventDescriptor& each : trace.descriptors) {
    json["descriptors"].push_back({each.name, each.category, each.args, each.number});
  }
  for (const TraceEvent& each : trace.events) {
    json["events"].push_back({each.track, each.descriptor, each.number, each.begin, each.duration});
  }
  return json.dump();
}

RankTrace rank_trace_from(const std::string& text) {
  const Json json = Json::parse(text);
  RankTrace trace;
  json.at("rank").get_to(trace.rank);
  json.at("process").get_to(trace.process);
  for (const Json& each : json.value("tracks", Json::array())) {
    trace.tracks.push_back({each.at(0), each.at(1)});
  }
  for (const Json& each : json.value("descriptors", Json::array())) {
    trace.descriptors.push_back({each.at(0), each.at(1), each.at(2), each.at(3)});
  }
  for (const Json& each : json.value("events", Json::array())) {
    trace.events.push_back({each.at(0), each.at(1), each.at(2), each.at(3), each.at(4)});
  }
  return trace;
}

std::string trace_head() { return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"; }

std::string trace_events(const RankTrace& trace, bool first) {
  std::string text = first ? "" : ",\n";
  text += metadata_event(trace, 0, "process_name", {{"name", trace.process}});
  text += ",\n" + metadata_event(trace, 0, "process_sort_index", {{"sort_index", trace.rank}});
  for (const auto& each : trace.tracks) {
    text += ",\n" + metadata_event(trace, each.id, "thread_name", {{"name", each.name}});
    text += ",\n" + metadata_event(trace, each.id, "thread_sort_index", {{"sort_index", each.id}});
  }
  std::vector<std::string> beginnings;
  for (const EventDescriptor& descriptor : trace.descriptors) {
    beginnings.push_back(beginning(trace, descriptor));
  }
  for (const TraceEvent& event : trace.events) {
    text += fmt::format(",\n{}:{}}},\"tid\":{},\"ts\":{},\"dur\":{}}}",
                        beginnings[event.descriptor], event.number, event.track,
                        microseconds(event.begin), microseconds(event.duration));
  }
  return text;
}

std::string trace_tail(const Json& metadata) {
  return fmt::format("\n],\"otherData\":{}}}\n", metadata.dump());
}

}  // namespace trireme::train
