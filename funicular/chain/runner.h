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
    done,     ///< nothing; its reasons tell options that changed and change a sum's rounding only
    run,      ///< it was never begun
    go_on,    ///< it was begun with the same meaning, and did not end
    rerun,    ///< what it means, or what it made, is not what it was
    perhaps,  ///< an earlier step makes its inputs again, and they may stay equal; only in a dry run
  };
  Kind kind;
  std::vector<std::string> reasons;
};

/// The name of a kind in messages: "done", "run", "resume", "rerun", "perhaps".
const char* name_of(Decision::Kind kind);

/// What runs a step: gets its words, "launch -n N -- PROGRAM" in front where it has several ranks, and the file that its standard
/// output goes to; returns the exit code.
using Starter = std::function<int(const std::vector<std::string>& words, const fs::path& output)>;

/// The chain whose state lies in a folder. For each step STEP.out there holds what it has printed.
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
  /// `decided`: the decisions of a dry run about the steps before. Nobody knows yet what steps that are not done will make.
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
