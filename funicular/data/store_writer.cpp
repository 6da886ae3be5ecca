#include "funicular/data/store_writer.h"

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/data/store_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <future>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

namespace funicular::data {

namespace {

constexpr std::array kStoreFiles = {kMetaFile,  kTokensFile, kRowsFile,     kDocumentsFile,
                                    kWordsFile, kLabelsFile, kLabelRowsFile};

bool is_store_file(const std::string& name) {
  return std::find(kStoreFiles.begin(), kStoreFiles.end(), name) != kStoreFiles.end();
}

// Returns "" if the folder has only a store's files, else the name of a foreign entry.
std::string foreign_entry(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (!is_store_file(entry.path().filename().string()) || !entry.is_regular_file())
      return entry.path().filename().string();
  return "";
}

// Only files that a builder writes are ever deleted.
void remove_store_files(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (is_store_file(entry.path().filename().string())) fs::remove(entry.path(), ignored);
}

void remove_store(const fs::path& folder) {
  std::error_code ignored;
  remove_store_files(folder);
  fs::remove(folder, ignored);
}

/// Removes the folders above `store` that are below `kept`, as far as they are empty.
void remove_empty_above(const fs::path& store, const fs::path& kept) {
  std::error_code error;
  fs::path folder = fs::absolute(store, error).parent_path();
  while (folder != kept && folder.has_relative_path() && fs::remove(folder, error))
    folder = folder.parent_path();
}

fs::path resolve(const fs::path& store) {
  std::error_code ignored;
  const fs::path plain = store.has_filename() ? store : store.parent_path();
  return fs::is_symlink(plain, ignored) && fs::exists(plain, ignored) ? fs::canonical(plain) : plain;
}

void require_replaceable(const fs::path& store, bool overwrite) {
  std::error_code ignored;
  if (!fs::exists(store, ignored)) return;
  if (!fs::is_directory(store, ignored))
    throw InputError("token store", "{}: a file is in the way; choose another --output", store.string());
  if (fs::is_empty(store, ignored)) return;
  if (!overwrite)
    throw InputError("token store",
                     "{} exists already; choose another --output, or replace it with --overwrite",
                     store.string());
  const std::string other = foreign_entry(store);
  if (!other.empty())
    throw InputError(
        "token store",
        "{} holds {}, which is no part of a token store, and so is not replaced; choose another --output",
        store.string(), other);
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

/// Returns false if another process has the lock.
bool try_lock(int descriptor, const fs::path& file) {
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return true;
  if (errno != EWOULDBLOCK)
    throw RunError("token store", "cannot lock {}: {}", file.string(), errno_text(errno));
  return false;
}

/// Whether the open file is still the one of this name.
bool is_named(int descriptor, const fs::path& file) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::lstat(file.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace

BuildFolder::BuildFolder(const fs::path& store, bool overwrite)
    : store_(resolve(store)), path_(building_folder(store_)) {
  require_replaceable(store_, overwrite);
  found_ = existing_part(store_);
  try {
    if (store_.has_parent_path()) make_directories(store_.parent_path());
    make();
  } catch (...) {
    remove_empty_above(store_, found_);
    throw;
  }
}

// mkdir never follows a link of this name: it makes a new folder or fails.
void BuildFolder::make() {
  for (;;) {
    if (::mkdir(path_.c_str(), 0777) == 0) {
      if (take_new()) return;
    } else if (errno == EEXIST) {
      clear_leftover();
    } else {
      throw write_error(path_, errno);
    }
  }
}

// The lock is on the descriptor of tokens.bin, so that the kernel drops it if the process dies. Returns false if
// another builder took the new folder for a leftover and cleared it.
bool BuildFolder::take_new() {
  Descriptor folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0) return false;
  struct stat status {};
  if (::fstat(folder.get(), &status) != 0) throw write_error(path_, errno);
  ::fchmod(folder.get(), status.st_mode & 07700);  // no effect on file systems without permissions
  Descriptor file(
      ::openat(folder.get(), kTokensFile, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file.get() < 0 && (errno == ENOENT || errno == EEXIST)) return false;
  if (file.get() < 0) {
    const int error = errno;
    ::rmdir(path_.c_str());
    throw write_error(path_ / kTokensFile, error);
  }
  if (!try_lock(file.get(), path_ / kTokensFile)) return false;
  if (!is_named(file.get(), path_ / kTokensFile)) return false;
  mode_ = status.st_mode & 07777;
  folder_ = folder.release();
  lock_ = file.release();
  return true;
}

void BuildFolder::refuse_running() const {
  throw InputError("token store", "another build of {} is running; wait for it, or choose another --output",
                   store_.string());
}

// Removes a dead builder's folder and never reuses it, as anyone who may write beside the store could have made it.
void BuildFolder::clear_leftover() const {
  const Descriptor folder(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0 && errno == ENOENT) return;
  if (folder.get() < 0 && (errno == ELOOP || errno == ENOTDIR))
    throw InputError(
        "token store",
        "{}: expected nothing, or the folder of an interrupted build, found a link or a file; remove "
        "it, or choose another --output",
        path_.string());
  if (folder.get() < 0) throw write_error(path_, errno);
  const Descriptor file(::openat(folder.get(), kTokensFile, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() >= 0 && !try_lock(file.get(), path_ / kTokensFile)) refuse_running();
  for (const char* name : kStoreFiles)
    if (::unlinkat(folder.get(), name, 0) != 0 && errno != ENOENT && errno != EISDIR)
      throw write_error(path_ / name, errno);
  if (::rmdir(path_.c_str()) == 0 || errno == ENOENT) return;
  if (errno != ENOTEMPTY && errno != EEXIST) throw write_error(path_, errno);
  const std::string other = foreign_entry(path_);
  if (!other.empty())
    throw InputError("token store",
                     "{} holds {}, which is no part of an interrupted build; remove it, or choose another "
                     "--output",
                     path_.string(), other);
}

BuildFolder::~BuildFolder() {
  if (!committed_) {
    remove_store(path_);
    remove_empty_above(store_, found_);
  }
  if (lock_ >= 0) ::close(lock_);
  if (folder_ >= 0) ::close(folder_);
}

void BuildFolder::commit() {
  ::fchmod(folder_, mode_);
  sync_path(path_);
  std::error_code ignored;
  const bool replaces = fs::exists(store_, ignored) && !fs::is_empty(store_, ignored);
  if (replaces) {
    exchange_with_old();
  } else if (::rename(path_.c_str(), store_.c_str()) != 0) {
    throw RunError("token store", "cannot rename {} to {}: {}", path_.string(), store_.string(),
                   errno_text(errno));
  }
  committed_ = true;
  sync_path(store_.has_parent_path() ? store_.parent_path() : fs::path("."));
}

void BuildFolder::exchange_with_old() {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, store_.c_str(), RENAME_EXCHANGE) == 0) {
    remove_store(path_);
    return;
  }
  // Fallback for file systems that cannot exchange two names. A crash between the two steps leaves both stores
  // complete, under other names.
  const fs::path old = path_.string() + ".old";
  if (::rename(store_.c_str(), old.c_str()) != 0 || ::rename(path_.c_str(), store_.c_str()) != 0)
    throw RunError("token store", "cannot replace {}: {}", store_.string(), errno_text(errno));
  remove_store(old);
}

void EncodedRows::clear() {
  tokens.clear();
  word_bits.clear();
  column_ends.clear();
  document_rows.clear();
  classes.clear();
  set_ends.clear();
  values.clear();
  weights.clear();
  class_names.clear();
  rows = tokens_count = unknown_tokens = longest_row = 0;
}

/// A file that is hashed as it is written, whole and by blocks.
class StoreWriter::File {
 public:
  File(const fs::path& folder, const char* name, uint64_t block_bytes)
      : name_(name),
        block_bytes_(block_bytes),
        writer_(folder / name),
        written_back_(::open((folder / name).c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (written_back_ >= 0) ::close(written_back_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  void write(const void* data, size_t size) {
    hash_.update(data, size);
    writer_.write(data, size);
    write_back();
    const auto* next = static_cast<const std::byte*>(data);
    while (size > 0) {
      const size_t part = std::min<size_t>(size, block_bytes_ - in_block_);
      block_->update(next, part);
      next += part;
      size -= part;
      in_block_ += part;
      if (in_block_ == block_bytes_) end_block();
    }
  }
  template <class T>
  void write(const std::vector<T>& values) {
    write(values.data(), values.size() * sizeof(T));
  }
  /// Flushes the buffer, so that the written bytes can be mapped.
  void flush() { writer_.flush(); }
  StoreMeta::File close() {
    writer_.close(/*sync=*/true);
    if (in_block_ > 0) end_block();
    return {name_, writer_.position(), hash_.digest(), blocks_};
  }

 private:
  /// Starts writing to the disk early, so that close() waits less. Best effort: only close() guarantees it.
  void write_back() {
    constexpr uint64_t kPart = 4 << 20;
    if (writer_.position() < begun_ + kPart) return;
    begun_ = writer_.position();
    ::sync_file_range(written_back_, 0, 0, SYNC_FILE_RANGE_WRITE);
  }

  void end_block() {
    blocks_.push_back(block_->digest());
    block_.emplace();
    in_block_ = 0;
  }

  const char* name_;
  const uint64_t block_bytes_;
  FileWriter writer_;
  int written_back_;                                ///< a descriptor of the same file
  uint64_t begun_ = 0;                              ///< bytes whose writing to the disk has begun
  StreamHash hash_;                                 ///< hash of the whole file
  std::optional<StreamHash> block_{std::in_place};  ///< hash of the current block
  uint64_t in_block_ = 0;                           ///< bytes of the current block so far
  std::vector<uint64_t> blocks_;
};

StoreWriter::StoreWriter(const fs::path& store, bool overwrite, StoreMeta meta)
    : folder_(store, overwrite), meta_(std::move(meta)), fixed_names_(!meta_.label_names.empty()) {
  tokens_ = make_file(kTokensFile);
  rows_ = make_file(kRowsFile);
  documents_ = make_file(kDocumentsFile);
  words_ = make_file(kWordsFile);
  if (meta_.labels != LabelKind::none) labels_ = make_file(kLabelsFile);
  if (meta_.weights) weights_ = make_file(kWeightsFile);
  const uint64_t zero = 0;
  rows_->write(&zero, sizeof zero);
  if (has_label_lists(meta_.labels)) {
    label_rows_ = make_file(kLabelRowsFile);
    label_rows_->write(&zero, sizeof zero);
  }
}

StoreWriter::~StoreWriter() = default;

std::unique_ptr<StoreWriter::File> StoreWriter::make_file(const char* name) const {
  return std::make_unique<File>(folder_.path(), name, meta_.block_bytes);
}

void StoreWriter::append(const EncodedRows& rows) {
  tokens_->write(rows.tokens);
  append_bits(rows);
  append_offsets(rows);
  append_labels(rows);
  meta_.rows += rows.rows;
  meta_.tokens += rows.tokens_count;
  meta_.unknown_tokens += rows.unknown_tokens;
  meta_.longest_row = std::max(meta_.longest_row, rows.longest_row);
}

// The bits of a piece begin anywhere in a word: each element is split over two.
void StoreWriter::append_bits(const EncodedRows& rows) {
  const unsigned shift = meta_.tokens % 64;
  scratch_.clear();
  uint64_t left = rows.tokens_count;
  for (const uint64_t bits : rows.word_bits) {
    const uint64_t count = std::min<uint64_t>(left, 64);
    left -= count;
    pending_bits_ |= bits << shift;
    if (shift + count < 64) continue;  // only the last element can be this short
    scratch_.push_back(pending_bits_);
    pending_bits_ = shift ? bits >> (64 - shift) : 0;
  }
  words_->write(scratch_);
}

void StoreWriter::append_offsets(const EncodedRows& rows) {
  scratch_.assign(rows.column_ends.begin(), rows.column_ends.end());
  for (uint64_t& end : scratch_) end += meta_.tokens;
  rows_->write(scratch_);

  scratch_.assign(rows.document_rows.begin(), rows.document_rows.end());
  for (uint64_t& row : scratch_) row += meta_.rows;
  // The very first row always begins a document.
  if (meta_.rows == 0 && rows.rows > 0 && (scratch_.empty() || scratch_.front() != 0))
    scratch_.insert(scratch_.begin(), 0);
  documents_->write(scratch_);
  meta_.documents += scratch_.size();
}

void StoreWriter::append_labels(const EncodedRows& rows) {
  if (meta_.weights) weights_->write(rows.weights);
  if (meta_.labels == LabelKind::values || has_shares(meta_.labels)) labels_->write(rows.values);
  const bool lists = has_label_lists(meta_.labels);
  if (meta_.labels != LabelKind::classes && !lists) return;
  if (lists) {
    scratch_.assign(rows.set_ends.begin(), rows.set_ends.end());
    for (uint64_t& end : scratch_) end += meta_.set_labels;
    label_rows_->write(scratch_);
    meta_.set_labels += rows.classes.size();
  }
  if (fixed_names_) return labels_->write(rows.classes);
  std::vector<int32_t> numbers;  // numbers of this piece's names
  for (const auto& name : rows.class_names) {
    const auto found = std::find(meta_.label_names.begin(), meta_.label_names.end(), name);
    numbers.push_back(static_cast<int32_t>(found - meta_.label_names.begin()));
    if (found == meta_.label_names.end()) meta_.label_names.push_back(name);
  }
  std::vector<int32_t> classes(rows.classes);
  for (int32_t& label : classes) label = numbers[static_cast<size_t>(label)];
  labels_->write(classes);
}

void sort_label_names(std::vector<std::string>& names) {
  const auto number = [](const std::string& name, int64_t& value) {
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
    return error == std::errc() && end == name.data() + name.size();
  };
  int64_t ignored = 0;
  const bool numeric =
      std::all_of(names.begin(), names.end(), [&](const auto& name) { return number(name, ignored); });
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    int64_t x = 0, y = 0;
    if (numeric && number(a, x) && number(b, y) && x != y) return x < y;
    return a < b;
  });
}

// While rows arrive, classes are numbered by first occurrence. The final numbers must not depend on the order of the
// rows, so they are assigned at the end.
void StoreWriter::finish_labels() {
  const std::vector<std::string> met = meta_.label_names;
  sort_label_names(meta_.label_names);
  std::vector<int32_t> number(met.size());
  for (size_t i = 0; i < met.size(); ++i)
    number[i] = static_cast<int32_t>(std::find(meta_.label_names.begin(), meta_.label_names.end(), met[i]) -
                                     meta_.label_names.begin());
  labels_->close();
  const MappedFile old(folder_.path() / kLabelsFile);
  fs::remove(folder_.path() / kLabelsFile);
  labels_ = make_file(kLabelsFile);
  const std::span<const int32_t> labels = old.as<int32_t>();
  if (meta_.labels == LabelKind::classes) {
    for (const int32_t label : labels) labels_->write(&number[static_cast<size_t>(label)], sizeof label);
    return;
  }
  label_rows_->flush();
  const MappedFile ends(folder_.path() / kLabelRowsFile);
  const std::span<const uint64_t> at = ends.as<uint64_t>();
  std::vector<int32_t> set;
  for (size_t row = 0; row + 1 < at.size(); ++row) {
    set.clear();
    for (const int32_t label : labels.subspan(at[row], at[row + 1] - at[row]))
      set.push_back(number[static_cast<size_t>(label)]);
    if (meta_.labels == LabelKind::sets) std::sort(set.begin(), set.end());
    labels_->write(set);
  }
}

StoreMeta StoreWriter::commit() {
  if ((meta_.labels == LabelKind::classes || has_label_lists(meta_.labels)) && !fixed_names_) finish_labels();
  words_->write(&pending_bits_, (meta_.tokens % 64 + 7) / 8);
  documents_->write(&meta_.rows, sizeof meta_.rows);
  // Closing a file waits for the disk, so the smaller files are closed while tokens.bin, the largest, is.
  auto others = std::async(std::launch::async, [this] {
    std::vector<StoreMeta::File> closed;
    for (File* file :
         {rows_.get(), documents_.get(), words_.get(), labels_.get(), label_rows_.get(), weights_.get()})
      if (file) closed.push_back(file->close());
    return closed;
  });
  meta_.files.push_back(tokens_->close());
  for (StoreMeta::File& file : others.get()) meta_.files.push_back(std::move(file));
  FileWriter writer(folder_.path() / kMetaFile);
  writer.write(write_store_meta(meta_));
  writer.close(/*sync=*/true);
  folder_.commit();
  return meta_;
}

}  // namespace funicular::data
