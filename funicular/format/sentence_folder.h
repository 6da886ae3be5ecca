#pragma once
// Folders of sentence-transformers: which modules turn a text into a vector, in the files of every version.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/file.h"

namespace funicular::format {

/// How the hidden states of a text's tokens become one row. In the order in which sentence-transformers puts several
/// rows side by side.
enum class Pooling { cls, max, mean, mean_sqrt_len, weighted_mean, last_token };

/// The names of sentence-transformers 5.4 and later, in the order of Pooling.
const std::vector<std::string>& pooling_names();
std::string pooling_name(Pooling pooling);
/// Throws InputError that lists the names; `origin` tells where the name was read.
Pooling parse_pooling(const std::string& name, const std::string& origin);

/// A module behind the pooling.
struct SentenceStep {
  enum class Kind { dense, normalise };
  Kind kind = Kind::normalise;
  int64_t inputs = 0, outputs = 0;  ///< only of dense, as the fields below
  bool bias = true;
  std::string activation = "tanh";  ///< one of dense_activations()
  fs::path folder = {};  ///< where its weights lie, below the sentence folder; empty: not stored yet

  static SentenceStep normalisation() { return {}; }
  static SentenceStep dense(int64_t inputs, int64_t outputs, bool bias, std::string activation);
};

/// "identity" and the names of format::supported_activations() that torch has a class for.
const std::vector<std::string>& dense_activations();

/// The contents of modules.json and of the files beside it.
struct SentenceFolder {
  /// The folder of the encoder or of the table of static embeddings, below the sentence folder; "": the same folder.
  fs::path encoder = {};
  bool is_static =
      false;  ///< StaticEmbedding: a table of vectors instead of an encoder; there are no poolings
  int64_t max_length =
      0;  ///< tokens of a text at most, special ones included; 0: not said, of tables no limit
  bool lower_case = false;
  int64_t width = 0;  ///< of the hidden states that the poolings read; 0: not said
  std::vector<Pooling> poolings = {Pooling::mean};
  bool include_prompt = true;  ///< false: poolings leave out all tokens up to the end of the prompt
  std::vector<SentenceStep> steps = {};

  std::map<std::string, std::string> prompts = {};
  std::string default_prompt = {};  ///< its name; "": none
  std::string similarity = {};      ///< cosine, dot, euclidean, manhattan; "": not said, which means cosine
  std::optional<int64_t> truncate_dim = {};

  /// Returns the width of a text's vector if hidden states are `width` wide.
  int64_t vector_width(int64_t width) const;
};

/// Whether the folder holds a modules.json.
bool is_sentence_folder(const fs::path& folder);

/// Reads the files of both forms: up to 5.3, and from 5.4 on. Weights and the encoder are not read. Throws InputError
/// that names the file and what was found. Refuses modules other than Transformer, Pooling, Dense, Normalize, Dropout
/// and StaticEmbedding, an order of modules that gives no vector, and paths outside of the folder.
SentenceFolder read_sentence_folder(const fs::path& folder);

/// Writes modules.json and the configurations of the modules in the form of versions up to 5.3, which later ones read
/// as well. Weights, config.json and the tokeniser's files are the caller's. Sets `encoder` (for a table this is a
/// subfolder) and the folders of the steps. Throws InputError for poolings that this form cannot express: in another
/// order than that of Pooling, or twice.
void write_sentence_folder(SentenceFolder& modules, const fs::path& folder);

/// Folder of the weights of step `step`, below the sentence folder: "2_Dense".
fs::path step_folder(const SentenceFolder& modules, size_t step);

}  // namespace funicular::format
