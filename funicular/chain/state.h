#pragma once
// State of a chain between calls: the finished steps, with their inputs and options.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/chain/contents.h"

namespace funicular::chain {

/// A step as it was begun, or done.
struct StepRecord {
  bool done = false;
  std::string command;
  std::map<std::string, std::vector<std::string>> options;  ///< see Step::options
  std::map<std::string, std::vector<std::string>> rounding =
      {};  ///< see Step::rounding; empty in an older state
  struct Read {
    std::string path, hash;
    bool operator==(const Read&) const = default;
  };
  std::map<std::string, std::vector<Read>> inputs;  ///< by option, in the order in which they were given
  std::map<std::string, std::string> made;          ///< of a step that is done: path of a product -> its hash
  double seconds = 0;                               ///< of the call that ended it
  std::string version;                              ///< of the program; for people only
  int64_t place = 0;                                ///< in the chain's order; 0 in a state without it
};

struct State {
  std::map<std::string, StepRecord> steps;
  std::map<std::string, FileRecord> files;  ///< see Contents::known
};

/// Returns the names of the steps, each after the steps that make its inputs. If several could be next, the chain's
/// order decides, then the name.
std::vector<std::string> in_order(const State& state);

/// Reads the state in `file`; empty if there is no file. Throws InputError for a file that is damaged.
State read_state(const fs::path& file);
State state_from(const Json& json, const std::string& origin);
OrderedJson to_json(const State& state);
/// Replaces the file in one step, so that a kill leaves the earlier one or this one.
void write_state(const fs::path& file, const State& state);

}  // namespace funicular::chain
