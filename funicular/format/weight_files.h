#pragma once
// The weights of a Hugging Face folder: model.safetensors, or the several files that model.safetensors.index.json
// names.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/safetensors.h"

namespace funicular::format {

/// Memory-mapped weights in one or more files, as one list of tensors.
class WeightFiles {
 public:
  /// Throws InputError if the folder has no weights that can be read, and names the remedy. Also throws it if the
  /// index names a missing file, a file outside of the folder, or a tensor that its file lacks. Two files with
  /// tensors of one name are an InputError, too.
  explicit WeightFiles(const fs::path& folder);

  /// The path that stands for the weights in messages: the one file, or the index.
  const fs::path& path() const { return path_; }
  /// The tensors of all files, each file in the order of its data. A tensor that holds several weights of a model
  /// (format::parts_of_joint) comes as these. Valid as long as this object.
  const std::vector<const TensorEntry*>& entries() const { return entries_; }
  /// The file that holds a tensor, for messages.
  const fs::path& path_of(const TensorEntry& entry) const;
  /// All files that make up the weights, the index included.
  std::vector<fs::path> files() const;

 private:
  void open_shards();
  void take(const TensorEntry& entry);
  fs::path path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::unique_ptr<TensorEntry>> parts_;  ///< of joint weights
  std::vector<const TensorEntry*> entries_;
};

/// Whether the folder holds weights that WeightFiles reads.
bool has_weight_files(const fs::path& folder);

}  // namespace funicular::format
