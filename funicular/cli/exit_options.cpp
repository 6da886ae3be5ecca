#include "funicular/cli/exit_options.h"

#include "funicular/base/error.h"

namespace funicular::cli {

void ExitOptions::declare(Arguments& arguments) {
  arguments.section("Early exit");
  arguments
      .add(
          "exit-threshold", "X", choice.threshold, Effect::result,
          "the normalised entropy below which a row leaves the model, or the confidence from which it leaves")
      .range(0)
      .default_text("none: the whole model answers");
  arguments
      .add(
          "speed", "TIMES", choice.speed, Effect::result,
          "choose the threshold at which rows needed 1 / TIMES of the layers, on the --eval file of finetune")
      .range(1)
      .default_text("none");
  arguments
      .add("exit-accuracy", "SHARE", choice.accuracy, Effect::result,
           "choose the threshold that reached this accuracy in the fewest layers, on the --eval file of "
           "finetune")
      .range(0, 1)
      .default_text("none");
  arguments.add("exit-rule", "NAME", choice.rule, model::exit_rule_names(), Effect::result,
                "measure of how sure an exit is: its entropy, or its calibrated confidence");
  arguments
      .add("cascade", "DIR", cascade, Effect::input,
           "folder of a small model that is asked first; --model answers the rows that it is not sure of")
      .takes_model()
      .default_text("none");
}

void ExitOptions::check(const Arguments& arguments, bool evaluates, bool cuda_graphs) const {
  const int chosen = choice.threshold.has_value() + choice.speed.has_value() + choice.accuracy.has_value();
  if (chosen > 1)
    throw InputError("usage",
                     "--exit-threshold, --speed and --exit-accuracy each choose a threshold; give one");
  if (!cascade.empty() && (choice.speed || choice.accuracy))
    throw InputError("usage", "{} works only with a model that has exits; --cascade takes --exit-threshold",
                     choice.speed ? "--speed" : "--exit-accuracy");
  if (!cascade.empty() && evaluates && choice.threshold)
    throw InputError("usage", "evaluate --cascade measures all thresholds; leave out --exit-threshold");
  if (!cascade.empty() && !evaluates && !choice.threshold)
    throw InputError("usage",
                     "--cascade needs --exit-threshold; evaluate --cascade prints what each threshold gives");
  if (!evaluates && chosen == 0 && arguments.given("exit-rule"))
    throw InputError("usage",
                     "--exit-rule works only with --exit-threshold, --speed, --exit-accuracy or --cascade");
  if (cuda_graphs && (choice.given() || !cascade.empty()))
    throw InputError("usage",
                     "--cuda-graphs does not go with early exit and --cascade, where the answers decide the "
                     "next pass; leave out --cuda-graphs");
}

}  // namespace funicular::cli
