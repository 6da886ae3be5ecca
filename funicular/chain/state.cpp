#include "funicular/chain/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"

namespace funicular::chain {

namespace {

constexpr int kFormat = 1;

using Lists = std::map<std::string, std::vector<std::string>>;

StepRecord step_from(const Json& json, const std::string& origin) {
  StepRecord step{.done = json_get<bool>(json, "done", origin),
                  .command = json_get<std::string>(json, "command", origin),
                  .options = json_get<Lists>(json, "options", origin),
                  .rounding = json_get_or<Lists>(json, "rounding", {}, origin),
                  .inputs = {},
                  .made = json_get<std::map<std::string, std::string>>(json, "made", origin),
                  .seconds = json_get<double>(json, "seconds", origin),
                  .version = json_get<std::string>(json, "version", origin),
                  .place = json_get_or<int64_t>(json, "place", 0, origin)};
  for (const auto& [option, list] :
       json_get<std::map<std::string, std::vector<Json>>>(json, "inputs", origin))
    for (const Json& one : list) {
      if (!one.is_object()) throw InputError("json", "{}: inputs: expected objects", origin);
      step.inputs[option].push_back(
          {json_get<std::string>(one, "path", origin), json_get<std::string>(one, "hash", origin)});
    }
  return step;
}

OrderedJson to_json(const StepRecord& step) {
  OrderedJson inputs = OrderedJson::object();
  for (const auto& [option, list] : step.inputs)
    for (const auto& [path, hash] : list) inputs[option].push_back({{"path", path}, {"hash", hash}});
  return {{"done", step.done},         {"command", step.command}, {"options", step.options},
          {"rounding", step.rounding}, {"inputs", inputs},        {"made", step.made},
          {"seconds", step.seconds},   {"version", step.version}, {"place", step.place}};
}

FileRecord file_from(const Json& json, const std::string& origin) {
  return {.size = json_get<uint64_t>(json, "size", origin),
          .inode = json_get<uint64_t>(json, "inode", origin),
          .modified = json_get<int64_t>(json, "modified", origin),
          .changed = json_get<int64_t>(json, "changed", origin),
          .hash = json_get<std::string>(json, "hash", origin)};
}

State read(const Json& json, const std::string& origin) {
  if (!json.is_object()) throw InputError("json", "{}: expected an object", origin);
  if (const int format = json_get<int>(json, "format", origin); format != kFormat)
    throw InputError("json", "{}: found format {}; this program reads format {}", origin, format, kFormat);
  State state;
  const auto each = [&](const char* key, const auto& take) {
    const Json all = json_get<Json>(json, key, origin);
    if (!all.is_object()) throw InputError("json", "{}: the key \"{}\": expected an object", origin, key);
    for (const auto& [name, value] : all.items()) {
      if (!value.is_object()) throw InputError("json", "{}: {} {}: expected an object", origin, key, name);
      take(name, value);
    }
  };
  each("steps",
       [&](const std::string& name, const Json& step) { state.steps[name] = step_from(step, origin); });
  each("files",
       [&](const std::string& name, const Json& file) { state.files[name] = file_from(file, origin); });
  return state;
}

using Names = std::set<std::string>;

/// By step, the steps that have made what it reads, or something in it, or a folder around it.
std::map<std::string, Names> makers_of(const std::map<std::string, StepRecord>& steps) {
  std::map<std::string, Names> by_product;  // with a slash at its end
  for (const auto& [name, step] : steps)
    for (const auto& [product, hash] : step.made) by_product[product + "/"].insert(name);
  std::map<std::string, Names> makers;
  const auto read_by = [&](const std::string& path, Names& found) {
    const std::string key = path + "/";
    for (auto next = by_product.lower_bound(key); next != by_product.end() && next->first.starts_with(key);
         ++next)
      found.insert(next->second.begin(), next->second.end());
    for (size_t slash = key.find('/'); slash + 1 < key.size(); slash = key.find('/', slash + 1))
      if (const auto above = by_product.find(key.substr(0, slash + 1)); above != by_product.end())
        found.insert(above->second.begin(), above->second.end());
  };
  for (const auto& [name, step] : steps) {
    for (const auto& [option, list] : step.inputs)
      for (const StepRecord::Read& read : list) read_by(read.path, makers[name]);
    makers[name].erase(name);
  }
  return makers;
}

/// The one whose name comes first.
std::pair<int64_t, std::string> first_by_name(const std::set<std::pair<int64_t, std::string>>& places) {
  return *std::min_element(places.begin(), places.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
}

}  // namespace

std::vector<std::string> in_order(const State& state) {
  std::map<std::string, Names> makers = makers_of(state.steps), readers;
  for (const auto& [name, needed] : makers)
    for (const std::string& maker : needed) readers[maker].insert(name);
  using Place = std::pair<int64_t, std::string>;
  std::set<Place> ready, left;
  for (const auto& [name, step] : state.steps) {
    left.emplace(step.place, name);
    if (makers[name].empty()) ready.emplace(step.place, name);
  }
  std::vector<std::string> names;
  while (!left.empty()) {
    // None is ready where records of different calls make a circle.
    const Place next = ready.empty() ? first_by_name(left) : *ready.begin();
    ready.erase(next);
    left.erase(next);
    names.push_back(next.second);
    for (const std::string& reader : readers[next.second])
      if (makers[reader].erase(next.second) > 0 && makers[reader].empty()) {
        const Place place{state.steps.at(reader).place, reader};
        if (left.contains(place)) ready.insert(place);
      }
  }
  return names;
}

State read_state(const fs::path& file) {
  if (!fs::exists(file)) return {};
  return state_from(parse_json_or_null(read_file(file)), file.string());
}

State state_from(const Json& json, const std::string& origin) {
  try {
    return read(json, origin);
  } catch (const InputError& error) {
    throw InputError("chain",
                     "{} is damaged, or of another program ({}). Without it the chain does not know what it "
                     "has made: remove it, "
                     "move away what the steps have made, and give the command again",
                     origin, error.what());
  }
}

OrderedJson to_json(const State& state) {
  OrderedJson json = {
      {"format", kFormat}, {"steps", OrderedJson::object()}, {"files", OrderedJson::object()}};
  for (const auto& [name, step] : state.steps) json["steps"][name] = to_json(step);
  for (const auto& [name, file] : state.files)
    json["files"][name] = {{"size", file.size},
                           {"inode", file.inode},
                           {"modified", file.modified},
                           {"changed", file.changed},
                           {"hash", file.hash}};
  return json;
}

void write_state(const fs::path& file, const State& state) {
  write_file_atomically(file, json_text(to_json(state), 1) + "\n");
}

}  // namespace funicular::chain
