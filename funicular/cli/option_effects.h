#pragma once
// Effect of each option on the result of its command, by which a chain knows which steps are done.

#include <string_view>

namespace funicular::cli {

/// The one rule for steps that are done. A step runs again if a value of `result` or `presence`, an output's place, or the
/// contents of an input differ. If a value of `rounding` differs, the step stays done and a message says so. If a value of
/// `none` differs, the step stays done.
enum class Effect {
  result,     ///< another value is another result
  rounding,   ///< another value is the same result up to rounding: sums are added up in another order
  none,       ///< speed, memory, messages, or how often something is saved: the result is the same to the bit
  presence,   ///< a place: that there is one changes the result, and which one does not
  input,      ///< a file or folder whose contents are read
  tokenizer,  ///< a file or folder of which only the tokenizer's files are read
  input_or_name,  ///< an input where there is such a file or folder, else a value as `result`
  output          ///< a file or folder that is made
};

/// How an effect is called: "result", "none" …
const char* name_of(Effect effect);

/// The reason why the command cannot be a step of a chain; empty: it can.
std::string_view why_no_step(std::string_view command);

}  // namespace funicular::cli
