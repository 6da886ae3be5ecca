#pragma once
// Runs the steps of a chain that are not done yet. After a kill the same command resumes.

#include <functional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/chain/contents.h"
#include "funicular/chain/state.h"
#include "funicular/chain/step.h"

namespace funicular::chain {

/// Decision about a step.
struct Decision {
  enum class Kind {
    done,     ///< nothing to do; the reasons list changed options that only change the rounding of sums
    run,      ///< it was never begun
    go_on,    ///< it was begun with the same meaning, and did not end
    rerun,    ///< its meaning or its products have changed
    perhaps,  ///< an earlier step remakes its inputs, which may stay equal; only in a dry run
  };
  Kind kind;
  std::vector<std::string> reasons;
};

/// The name of a kind in messages: "done", "run", "resume", "rerun", "perhaps".
const char* name_of(Decision::Kind kind);

/// Runs a step and returns its exit code. It gets the step's words, and the file for its standard output. For
/// several ranks the words begin with "launch -n N -- PROGRAM" after the program's name.
using Starter = std::function<int(const std::vector<std::string>& words, const fs::path& output)>;

/// The chain whose state is in a folder. The file STEP.out there holds what the step STEP has printed.
class Chain {
 public:
  /// `steps`: from in_order.
  Chain(std::vector<Step> steps, fs::path folder);

  /// Predicts what run() would do, without writing anything.
  std::vector<Decision> plan();

  /// Runs the steps that are not done, in order; returns 0, or 75 where it was asked to stop. `program` is named in
  /// the words of steps with several ranks. Throws InputError or RunError where a step fails, by its exit code.
  int run(const fs::path& program, const Starter& start);

 private:
  /// `decided`: the decisions of a dry run about the earlier steps. The hashes of inputs that unfinished steps make
  /// are unknown then.
  Decision decide(const Step& step, const std::vector<Decision>* decided = nullptr);
  void adopt_renamed(bool dry);
  void require_free(const Step& step) const;
  void set_aside(const Step& step);
  void run_step(const Step& step, const Decision& decision, const fs::path& program, const Starter& start);
  void take_back(const Step& step, const StepRecord& earlier);
  void finish(const Step& step, StepRecord& record);
  void save();
  fs::path printed(const std::string& step) const { return folder_ / (step + ".out"); }

  std::vector<Step> steps_;
  fs::path folder_;
  State state_;
  Contents contents_;
};

}  // namespace funicular::chain
