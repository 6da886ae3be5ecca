#pragma once
// Pipeline schedules as data: the actions of each rank on micro-batches, in order.
//
// A model is cut into stages, and a batch into micro-batches. Files, messages and drawings write an action as the
// stage's number, letters, and the micro-batch's number:
//
//   2F0   forward pass of micro-batch 0 on stage 2.
//   2B0   its backward pass. It can also be two actions:
//   2I0   computes the gradient of the stage's input;
//   2W0   computes the gradient of the stage's weights.
//   2SF0  sends the output of 2F0 to stage 3.     3RF0  receives it there.
//   2SB0  sends the gradient of its input to 1.   1RB0  receives it there.
//   2R    reduces the weights' gradients over replicas.
//   2U    updates the weights. In asynchronous schedules, 2U4 makes version 4 of them.
//
// In asynchronous schedules, "@3" after F, B, I or W names the version of the weights that the pass uses; training
// starts with version 0. A stage may be on several ranks, its replicas; one of them runs each micro-batch
// (pipeline/placement.h). A file has one row per rank, from rank 0 on. Spaces or commas separate actions, and "#"
// begins a comment. A rank without actions has the row "-". Rows may leave out all sends and receives, as they follow
// from the computations (pipeline/messages.h).

#include <string>
#include <string_view>
#include <vector>

namespace funicular::pipeline {

enum class Kind {
  forward,
  backward,
  input_gradient,
  weight_gradient,
  send_forward,
  receive_forward,
  send_backward,
  receive_backward,
  reduce,
  update
};

struct Action {
  int stage = 0;
  Kind kind = Kind::forward;
  int micro_batch = -1;  ///< -1: none, for reduce and update
  int version = -1;      ///< version of the weights that an update makes or a pass uses; -1: not named

  bool operator==(const Action&) const = default;
};

/// Whether it is a computation: F, B, I, W.
bool computes(Kind kind);
/// Whether it computes the gradient of the stage's input: B or I.
bool gives_gradient(Kind kind);
/// Whether it is the last use of the forward pass's activations: B or W.
bool ends_micro_batch(Kind kind);
/// Whether it is a send or a receive.
bool is_message(Kind kind);

/// "2F0", "2F0@3", "2U", "2U4".
std::string to_text(const Action& action);

using Row = std::vector<Action>;

struct Schedule {
  std::string name;        ///< of its generator or file
  std::vector<Row> rows;   ///< one per rank
  std::vector<int> lines;  ///< line of each row in its file, from 1; empty: generated

  int ranks() const { return static_cast<int>(rows.size()); }
  /// One more than the largest number; 0 if there are no actions.
  int stages() const;
  int micro_batches() const;
  bool has_messages() const;
  /// Whether an action names a version.
  bool asynchronous() const;
  /// "FILE:LINE, rank 1" of a row, or "1f1b, rank 1".
  std::string place(int rank) const;
};

/// Parses the notation. Throws InputError naming `name`:LINE for a word that is no action, for numbers above 65535,
/// and for a text without a row.
Schedule parse_schedule(std::string_view text, const std::string& name);
/// Reads a schedule from a file.
Schedule read_schedule(const std::string& path);
/// The text that parse_schedule reads: one line per rank.
std::string to_text(const Schedule& schedule);

}  // namespace funicular::pipeline
