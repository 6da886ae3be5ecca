#include "funicular/format/weight_files.h"

#include <fmt/format.h>

#include <set>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/foreign_file.h"
#include "funicular/base/json.h"
#include "funicular/format/family.h"

namespace funicular::format {

namespace {

constexpr const char* kFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kPickle = "pytorch_model.bin";

/// Returns the command that converts pytorch_model.bin to model.safetensors. With weights_only, torch reads a
/// pickle without running programs in it.
std::string conversion_of(const fs::path& folder) {
  return fmt::format(
      "python3 -c \"import torch, safetensors.torch as s; s.save_file({{k: v.clone().contiguous() for k, v "
      "in "
      "torch.load('{0}/{1}', map_location='cpu', weights_only=True).items()}}, '{0}/{2}', {{'format': "
      "'pt'}})\"",
      folder.string(), kPickle, kFile);
}

/// Throws InputError if the file is no pickle but a Git LFS pointer or a web page.
void refuse_foreign_pickle(const fs::path& pickle) {
  const MappedFile file(pickle);
  for (const char* begin : {"version ", "<"})
    if (file.text().starts_with(begin)) refuse_foreign(file.text(), pickle.string(), "weights");
}

[[noreturn]] void refuse_other_formats(const fs::path& folder) {
  if (fs::is_regular_file(folder / kPickle)) refuse_foreign_pickle(folder / kPickle);
  if (fs::exists(folder / kPickle))
    throw InputError("weights",
                     "{} has no {}, but {}, a pickle, which can run any program when it is read. Convert it "
                     "once:\n  {}",
                     folder.string(), kFile, kPickle, conversion_of(folder));
  if (fs::exists(folder / "pytorch_model.bin.index.json"))
    throw InputError(
        "weights",
        "{} has no {}, but pickles in several files: load it with transformers and save_pretrained "
        "it again",
        folder.string(), kFile);
  throw InputError(
      "weights",
      "{} has no {}; download or copy the model whole, or save_pretrained it again with transformers",
      folder.string(), kFile);
}

}  // namespace

bool has_weight_files(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kFile, ignored) || fs::exists(folder / kIndex, ignored);
}

WeightFiles::WeightFiles(const fs::path& folder) : path_(folder / kFile) {
  if (fs::exists(path_)) {
    files_.push_back(std::make_unique<SafetensorsFile>(path_));
  } else {
    if (!fs::exists(folder / kIndex)) refuse_other_formats(folder);
    path_ = folder / kIndex;
    open_shards();
  }
  for (const auto& file : files_)
    for (const TensorEntry& entry : file->entries()) take(entry);
}

void WeightFiles::take(const TensorEntry& entry) {
  const std::vector<std::string> names = parts_of_joint(entry.name);
  const auto count = static_cast<int64_t>(names.size());
  if (count == 0 || entry.shape.empty() || entry.shape.front() % count != 0) {
    entries_.push_back(&entry);
    return;
  }
  const size_t bytes = entry.data.size() / names.size();
  for (size_t part = 0; part < names.size(); ++part) {
    TensorEntry one{names[part], entry.dtype, entry.shape, entry.data.subspan(part * bytes, bytes)};
    one.shape.front() /= count;
    parts_.push_back(std::make_unique<TensorEntry>(std::move(one)));
    entries_.push_back(parts_.back().get());
  }
}

void WeightFiles::open_shards() {
  const Json index = read_json(path_);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty())
    throw InputError("weights", "{}: expected \"weight_map\", an object from tensors to files",
                     path_.string());
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      throw InputError("weights", "{}: expected the name of a file for {}, found {}", path_.string(), tensor,
                       file.dump().substr(0, 80));
    const std::string name = file.get<std::string>();
    if (name.empty() || name != fs::path(name).filename().string() || name == "." || name == "..")
      throw InputError("weights", "{}: expected a file of the same folder for {}, found \"{}\"",
                       path_.string(), tensor, name);
    names.insert(name);
  }
  std::set<std::string, std::less<>> found;
  for (const std::string& name : names) {
    const fs::path shard = path_.parent_path() / name;
    if (!fs::exists(shard))
      throw InputError("weights", "{} names {}, which is not there; download or copy the model whole",
                       path_.string(), name);
    files_.push_back(std::make_unique<SafetensorsFile>(shard));
    for (const TensorEntry& entry : files_.back()->entries())
      if (!found.insert(entry.name).second)
        throw InputError("weights", "{}: {} is in another file, too", shard.string(), entry.name);
  }
  for (const auto& [tensor, file] : map->items())
    if (!found.contains(tensor))
      throw InputError("weights",
                       "{} says that {} is in {}, which lacks it; download or copy the model whole",
                       path_.string(), tensor, file.get<std::string>());
}

const fs::path& WeightFiles::path_of(const TensorEntry& entry) const {
  for (const auto& file : files_)
    for (const TensorEntry& one : file->entries())
      if (entry.data.data() >= one.data.data() && entry.data.data() <= one.data.data() + one.data.size())
        if (entry.name == one.name || entry.data.size() < one.data.size()) return file->path();
  return path_;
}

std::vector<fs::path> WeightFiles::files() const {
  std::vector<fs::path> all;
  if (files_.size() != 1 || files_.front()->path() != path_) all.push_back(path_);
  for (const auto& file : files_) all.push_back(file->path());
  return all;
}

}  // namespace funicular::format
