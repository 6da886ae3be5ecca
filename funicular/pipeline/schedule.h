#pragma once
// Pipeline schedules as data: which rank does what with which micro-batch, in which order.
//
// A model is cut into stages, and a batch into micro-batches. The notation, in files, messages and drawings, is a
// stage's number, letters, and a micro-batch's number:
//
//   2F0   forward pass of micro-batch 0 on stage 2
//   2B0   its backward pass; or in two parts:
//   2I0   the gradient of the stage's input,
//   2W0   the gradient of the stage's weights
//   2SF0  sends what 2F0 gave to stage 3          3RF0  receives it there
//   2SB0  sends the gradient of its input to 1    1RB0  receives it there
//   2R    reduces the weights' gradients over replicas
//   2U    updates the weights; asynchronously 2U4: makes version 4 of them
//
// "@3" behind F, B, I or W names the version of the weights that it uses (asynchronous schedules; version 0 is there
// at the start). A stage may lie on several ranks, its replicas; each micro-batch of it is on one of them
// (pipeline/placement.h). A file has one row a rank, from rank 0 on; actions are separated by spaces or commas, "#" begins a
// comment, and a row of nothing but "-" is that of a rank without actions. Rows may leave out all sends and receives:
// they follow from the rest (pipeline/messages.h).

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
  int micro_batch = -1;  ///< -1: none, of reduce and update
  int version = -1;      ///< of the weights, what an update makes or the others use; -1: not named

  bool operator==(const Action&) const = default;
};

/// Whether it takes time of the rank's processor: F, B, I, W.
bool computes(Kind kind);
/// Whether it gives the gradient of the stage's input: B or I.
bool gives_gradient(Kind kind);
/// Whether the activations of the forward pass are free after it: B or W.
bool ends_micro_batch(Kind kind);
/// Whether it is a send or a receive.
bool is_message(Kind kind);

/// "2F0", "2F0@3", "2U", "2U4".
std::string to_text(const Action& action);

using Row = std::vector<Action>;

struct Schedule {
  std::string name;        ///< of its generator or file
  std::vector<Row> rows;   ///< one a rank
  std::vector<int> lines;  ///< of a file: where each row stands, from 1; empty: generated

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

/// Reads the notation. Throws InputError naming `name`:LINE for a word that is no action and for numbers above 65535, and for a
/// text without a row.
Schedule parse_schedule(std::string_view text, const std::string& name);
/// Reads a schedule from a file.
Schedule read_schedule(const std::string& path);
/// The text that parse_schedule reads: one line per rank.
std::string to_text(const Schedule& schedule);

}  // namespace funicular::pipeline
