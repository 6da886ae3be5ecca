#include "funicular/chain/contents.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"

namespace funicular::chain {

namespace {

constexpr std::array kTokenizerFiles{"tokenizer.json",
                                     "tokenizer_config.json",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "vocab.txt",
                                     "vocab.json",
                                     "merges.txt",
                                     "sentencepiece.bpe.model",
                                     "spiece.model",
                                     "spm.model",
                                     "sentencepiece.model",
                                     "tokenizer.model"};
/// The files of a run's folder that other steps read. Its checkpoints are for the run alone, and its model is an
/// input by its own name.
constexpr std::array kRunFiles{"run.json", "metrics.jsonl"};

constexpr int64_t kSecond = 1'000'000'000;

int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

FileRecord look_at(const fs::path& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0)
    throw InputError("chain", "cannot read {}: {}", path.string(), errno_text(errno));
  return {.size = static_cast<uint64_t>(found.st_size),
          .inode = found.st_ino,
          .modified = nanoseconds(found.st_mtim),
          .changed = nanoseconds(found.st_ctim),
          .hash = {}};
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

/// Relative names, sorted.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> names;
  constexpr auto kLinks = fs::directory_options::follow_directory_symlink;
  for (auto entry = fs::recursive_directory_iterator(folder, kLinks);
       entry != fs::recursive_directory_iterator(); ++entry) {
    const bool hidden = is_hidden(entry->path());
    if (hidden && entry->is_directory()) entry.disable_recursion_pending();
    if (!hidden && !entry->is_directory()) names.push_back(entry->path().lexically_relative(folder));
  }
  std::sort(names.begin(), names.end());
  return names;
}

template <size_t N>
std::vector<fs::path> those_there(const fs::path& folder, const std::array<const char*, N>& names) {
  std::vector<fs::path> found;
  for (const char* name : names)
    if (fs::exists(folder / name)) found.emplace_back(name);
  return found;
}

}  // namespace

std::string Contents::hash(const fs::path& path, Part part) {
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::file_status status = fs::status(absolute);
  if (status.type() == fs::file_type::not_found) return "";
  if (fs::is_directory(status)) return folder(absolute, part);
  if (fs::is_regular_file(status)) return file(absolute);
  throw InputError("chain", "{} is neither a file nor a folder; a step reads what can be read again",
                   path.string());
}

std::string Contents::file(const fs::path& path) {
  FileRecord record = look_at(path);
  const std::string name = path.string();
  for (const auto* records : {&used_, &known_})
    if (const auto found = records->find(name); found != records->end()) {
      record.hash = found->second.hash;
      if (record == found->second) return used_[name] = record, record.hash;
    }
  const int64_t begin = now();
  record.hash = hash_text(hash_file(path));
  bytes_read_ += record.size;
  if (std::max(record.modified, record.changed) < begin - 2 * kSecond)
    used_[name] = record;
  else
    used_.erase(name);
  return record.hash;
}

std::string Contents::folder(const fs::path& path, Part part) {
  const std::vector<fs::path> names = part == Part::tokenizer         ? those_there(path, kTokenizerFiles)
                                      : fs::exists(path / "run.json") ? those_there(path, kRunFiles)
                                                                      : files_below(path);
  std::string list;
  for (const fs::path& name : names) list += name.string() + '\0' + file(path / name) + '\n';
  return hash_text(hash_bytes(list));
}

}  // namespace funicular::chain
