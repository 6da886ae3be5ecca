#pragma once
// Reads the files that runs, evaluations and chains have left in their folders, for a report.

#include <map>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/report/chart.h"

namespace funicular::report {

/// A training.
struct RunFiles {
  std::string name;  ///< its folder, without leading parts that all names share
  OrderedJson run;   ///< run.json
  /// From metrics.jsonl: name of a field -> its values by step, in the order of the steps.
  std::map<std::string, Line> lines;
};

/// The result of `funicular evaluate --output FOLDER` for a model.
struct EvaluationFiles {
  std::string name;
  OrderedJson found;  ///< evaluation.json
};

/// A step of a chain, as its state has it.
struct ChainStep {
  std::string name, command;
  bool done = false;
  double seconds = 0;
};

/// All that a report shows.
struct ReportFiles {
  std::vector<RunFiles> runs;
  std::vector<EvaluationFiles> evaluations;
  std::vector<ChainStep> steps;
};

/// Reads each folder of a run (run.json), of an evaluation (evaluation.json), or of a chain's state (state.json). A
/// chain stands for the runs and evaluations of its steps. Throws InputError for any other folder.
ReportFiles read_files(const std::vector<fs::path>& folders);

/// The lines of a metrics.jsonl; a last line that a kill has cut is left out. Throws InputError with FILE:LINE.
std::map<std::string, Line> lines_of(std::string_view text, const std::string& origin);

}  // namespace funicular::report
