#include "funicular/report/files.h"

#include <algorithm>
#include <limits>
#include <set>

#include "funicular/base/error.h"
#include "funicular/chain/state.h"

namespace funicular::report {

namespace {

/// Fields that stand for the horizontal axis and are no measures.
const std::set<std::string> kNoMeasures{"step", "epoch"};

OrderedJson read_object(const fs::path& path) {
  OrderedJson json = parse_json_or_null<OrderedJson>(read_file(path));
  if (!json.is_object()) throw InputError("report", "{}: expected a JSON object", path.string());
  return json;
}

class Folders {
 public:
  void add(const fs::path& folder) {
    if (fs::exists(folder / "state.json")) return add_chain(folder);
    const bool evaluated = fs::exists(folder / "evaluation.json"), trained = fs::exists(folder / "run.json");
    if (evaluated) add_evaluation(folder);
    if (trained) add_run(folder);
    if (evaluated || trained) return;
    throw InputError("report",
                     "--input {}: expected the folder of a run (with run.json), of evaluate --output "
                     "(evaluation.json) or of a chain's "
                     "state (state.json)",
                     folder.string());
  }

  ReportFiles take() { return std::move(files_); }

 private:
  void add_run(const fs::path& folder) {
    if (!seen_.insert(fs::weakly_canonical(folder / "run.json")).second) return;
    RunFiles run{
        .name = folder.lexically_normal().string(), .run = read_object(folder / "run.json"), .lines = {}};
    const fs::path metrics = folder / "metrics.jsonl";
    if (fs::exists(metrics)) run.lines = lines_of(read_file(metrics), metrics.string());
    files_.runs.push_back(std::move(run));
  }

  void add_evaluation(const fs::path& folder) {
    if (!seen_.insert(fs::weakly_canonical(folder / "evaluation.json")).second) return;
    files_.evaluations.push_back(
        {folder.lexically_normal().string(), read_object(folder / "evaluation.json")});
  }

  /// The products' names lie beside the state, as the chain's own file does.
  void add_chain(const fs::path& folder) {
    const fs::path base = fs::canonical(folder).parent_path();
    const chain::State state = chain::read_state(folder / "state.json");
    for (const std::string& name : chain::in_order(state)) {
      const chain::StepRecord& step = state.steps.at(name);
      files_.steps.push_back({name, step.command, step.done, step.seconds});
      for (const auto& [product, hash] : step.made) {
        const fs::path path = base / product;
        if (fs::exists(path / "evaluation.json")) add_evaluation(path);
        if (fs::exists(path.parent_path() / "run.json")) add_run(path.parent_path());
      }
    }
  }

  ReportFiles files_;
  std::set<fs::path> seen_;
};

/// Leaves out what all names begin with, up to a "/".
template <class Named>
void shorten(std::vector<Named>& all) {
  while (!all.empty()) {
    const size_t slash = all.front().name.find('/');
    if (slash == std::string::npos || slash + 1 >= all.front().name.size()) return;
    const std::string head = all.front().name.substr(0, slash + 1);
    if (!std::all_of(all.begin(), all.end(), [&](const Named& one) {
          return one.name.starts_with(head) && one.name.size() > head.size();
        }))
      return;
    for (Named& one : all) one.name.erase(0, head.size());
  }
}

}  // namespace

ReportFiles read_files(const std::vector<fs::path>& folders) {
  Folders reader;
  for (const fs::path& folder : folders) reader.add(folder);
  ReportFiles files = reader.take();
  shorten(files.runs);
  shorten(files.evaluations);
  for (size_t place = 0; place < files.runs.size(); ++place)
    for (auto& [field, line] : files.runs[place].lines) {
      line.name = files.runs[place].name;
      line.run = place;
    }
  return files;
}

std::map<std::string, Line> lines_of(std::string_view text, const std::string& origin) {
  std::map<std::string, Line> lines;
  size_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
    ++number;
    const Json record = parse_json_or_null(text.substr(begin, end - begin));
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number())
      throw InputError("report", "{}:{}: expected a JSON object with a step", origin, number);
    for (const auto& [field, value] : record.items()) {
      if (kNoMeasures.count(field) || !(value.is_number() || value.is_null())) continue;
      lines[field].x.push_back(record["step"].get<double>());
      lines[field].y.push_back(value.is_number() ? value.get<double>()
                                                 : std::numeric_limits<double>::quiet_NaN());
    }
  }
  return lines;
}

}  // namespace funicular::report
