#include "funicular/format/safetensors_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json.h"
#include "funicular/base/temporary.h"
#include "funicular/format/safetensors_text.h"

namespace funicular::format {

struct SafetensorsWriter::State {
  struct Slot {
    uint64_t begin = 0, size = 0;          // in the file
    std::map<uint64_t, uint64_t> written;  // disjoint, joined intervals [begin, end) relative to the tensor
  };

  fs::path path, temporary;
  int descriptor = -1;
  std::vector<TensorDeclaration> tensors;
  std::map<std::string, Slot, std::less<>> slots;
  uint64_t size = 0;
  std::mutex mutex;  // guards what follows and the slots' intervals
  StreamHash hash;
  std::atomic<bool> broken = false;  // a write failed: what lies on the disk is unknown
  uint64_t hashed = 0;               // bytes from the file's beginning that the hash has seen

  ~State() {
    if (descriptor < 0) return;
    ::close(descriptor);
    ::unlink(temporary.c_str());
  }

  [[noreturn]] void fail() {
    broken = true;
    throw write_error(path, errno);
  }

  void put(uint64_t offset, const void* data, uint64_t count) {
    const char* cursor = static_cast<const char*>(data);
    while (count > 0) {
      const ssize_t done = ::pwrite(descriptor, cursor, count, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail();
      cursor += done;
      offset += static_cast<uint64_t>(done);
      count -= static_cast<uint64_t>(done);
    }
  }

  void hash_in_order(uint64_t offset, const void* data, uint64_t count) {
    if (offset != hashed) return;
    hash.update(data, count);
    hashed += count;
  }

  void hash_rest() {
    std::vector<char> buffer(size_t{1} << 20);
    while (hashed < size) {
      const ssize_t count = ::pread(descriptor, buffer.data(), buffer.size(), static_cast<off_t>(hashed));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        broken = true;
        throw RunError("safetensors", "cannot read {} back: {}", path.string(), errno_text(errno));
      }
      hash_in_order(hashed, buffer.data(), static_cast<uint64_t>(count));
    }
  }
};

namespace {

/// Marks [begin, end) as written; false if a part of it was already.
bool add_interval(std::map<uint64_t, uint64_t>& written, uint64_t begin, uint64_t end) {
  auto next = written.upper_bound(begin);
  if (next != written.end() && next->first < end) return false;
  if (next != written.begin()) {
    const auto previous = std::prev(next);
    if (previous->second > begin) return false;
    if (previous->second == begin) {
      begin = previous->first;
      written.erase(previous);
    }
  }
  if (next != written.end() && next->first == end) {
    end = next->second;
    written.erase(next);
  }
  written.emplace(begin, end);
  return true;
}

/// Into the order of the file.
void sort_declarations(std::vector<TensorDeclaration>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorDeclaration& a, const TensorDeclaration& b) {
    return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
  });
}

/// The header's bytes, its length included, padded with spaces so that the data begins at a multiple of 64.
std::string header_bytes(std::span<const TensorDeclaration> tensors,
                         const SafetensorsWriter::Metadata& metadata) {
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  // ordered_json looks a key up by a linear search: the list is built directly.
  auto& items = header.get_ref<OrderedJson::object_t&>();
  uint64_t offset = 0;
  for (const TensorDeclaration& tensor : tensors) {
    const uint64_t end = offset + *tensor_bytes(tensor.dtype, tensor.shape);
    OrderedJson entry = OrderedJson::object();
    entry["dtype"] = dtype_name(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {offset, end};
    items.push_back({tensor.name, std::move(entry)});
    offset = end;
  }
  std::string text = header.dump();
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');
  if (text.size() > kMaximumSafetensorsHeader)
    throw InputError("safetensors", "the header takes {} bytes, the format allows {}: too many tensors",
                     text.size(), kMaximumSafetensorsHeader);
  const uint64_t length = text.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + text;
}

void check_declarations(const fs::path& path, std::span<const TensorDeclaration> tensors) {
  std::set<std::string_view> names;
  uint64_t total = 0;
  for (const TensorDeclaration& tensor : tensors) {
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second)
      throw InputError("safetensors", "{}: the tensor name {} is {}", path.string(), shown(tensor.name),
                       tensor.name == "__metadata__" ? "reserved" : "declared twice");
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes || __builtin_add_overflow(total, *bytes, &total) || total > INT64_MAX / 2)
      throw InputError("safetensors", "{}: tensor {}: shape {} with dtype {} is impossible", path.string(),
                       shown(tensor.name), shown(tensor.shape), dtype_name(tensor.dtype));
  }
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<TensorDeclaration> tensors,
                                     Metadata metadata)
    : state_(new State) {
  check_declarations(path, tensors);
  sort_declarations(tensors);
  const std::string header = header_bytes(tensors, metadata);
  uint64_t offset = header.size();
  for (const TensorDeclaration& tensor : tensors) {
    const uint64_t size = *tensor_bytes(tensor.dtype, tensor.shape);
    state_->slots[tensor.name] = {offset, size, {}};
    offset += size;
  }
  State& state = *state_;
  state.tensors = std::move(tensors);
  state.size = offset;
  state.path = path;
  remove_abandoned(path);
  state.temporary = temporary_name(path);
  state.descriptor =
      ::open(state.temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (state.descriptor < 0) state.fail();
  ::flock(state.descriptor, LOCK_EX | LOCK_NB);  // while it is being written nobody takes it for abandoned
  state.put(0, header.data(), header.size());
  state.hash_in_order(0, header.data(), header.size());
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> data) {
  const auto found = state_->slots.find(name);
  if (found != state_->slots.end() && found->second.size != data.size())
    throw InputError("safetensors", "{}: tensor {} was declared with {} bytes, found {}",
                     state_->path.string(), shown(name), found->second.size, data.size());
  write_at(name, 0, data);
}

void SafetensorsWriter::write_at(std::string_view name, uint64_t offset, std::span<const std::byte> data) {
  State& state = *state_;
  const auto found = state.slots.find(name);
  if (found == state.slots.end())
    throw InputError("safetensors", "{}: tensor {} was not declared", state.path.string(), shown(name));
  State::Slot& slot = found->second;
  if (offset > slot.size || data.size() > slot.size - offset)
    throw InputError("safetensors", "{}: tensor {} has {} bytes, found a piece [{}, {})", state.path.string(),
                     shown(name), slot.size, offset, offset + data.size());
  if (data.empty()) return;
  {
    const std::lock_guard lock(state.mutex);
    if (!add_interval(slot.written, offset, offset + data.size()))
      throw InputError("safetensors", "{}: tensor {}: bytes [{}, {}) are written twice", state.path.string(),
                       shown(name), offset, offset + data.size());
    state.hash_in_order(slot.begin + offset, data.data(), data.size());
  }
  state.put(slot.begin + offset, data.data(), data.size());
}

uint64_t SafetensorsWriter::file_size() const {
  return state_->size;
}

std::span<const TensorDeclaration> SafetensorsWriter::order() const {
  return state_->tensors;
}

uint64_t SafetensorsWriter::close() {
  State& state = *state_;
  if (state.descriptor < 0) throw InputError("safetensors", "{} is closed already", state.path.string());
  for (const auto& [name, slot] : state.slots) {
    const bool whole =
        slot.size == 0 ||
        (slot.written.size() == 1 && slot.written.begin()->second - slot.written.begin()->first == slot.size);
    if (!whole)
      throw InputError("safetensors", "{}: tensor {} was not written wholly", state.path.string(),
                       shown(name));
  }
  if (state.broken)
    throw RunError("safetensors", "{}: a write failed before, the file is not kept", state.path.string());
  state.hash_rest();
  if (::fsync(state.descriptor) != 0) state.fail();
  if (::rename(state.temporary.c_str(), state.path.c_str()) != 0) state.fail();
  ::close(std::exchange(state.descriptor, -1));
  sync_path(state.path.has_parent_path() ? state.path.parent_path() : fs::path("."));
  return state.hash.digest();
}

void create_safetensors(const fs::path& path, std::vector<TensorDeclaration> tensors,
                        const SafetensorsWriter::Metadata& metadata) {
  check_declarations(path, tensors);
  sort_declarations(tensors);
  const std::string header = header_bytes(tensors, metadata);
  uint64_t size = header.size();
  for (const TensorDeclaration& tensor : tensors) size += *tensor_bytes(tensor.dtype, tensor.shape);
  FileWriter file(path);
  file.write(header);
  file.close(/*sync=*/false);
  std::error_code error;
  fs::resize_file(path, size, error);
  if (error) throw write_error(path, error.value());
}

SafetensorsPieces::SafetensorsPieces(const fs::path& path)
    : file_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw write_error(path, errno);
}

SafetensorsPieces::~SafetensorsPieces() {
  ::close(descriptor_);
}

void SafetensorsPieces::write_at(std::string_view name, uint64_t offset, std::span<const std::byte> data) {
  const TensorEntry& entry = file_.at(name);
  if (offset > entry.data.size() || data.size() > entry.data.size() - offset)
    throw InputError("safetensors", "{}: tensor {} has {} bytes, found a piece [{}, {})",
                     file_.path().string(), shown(name), entry.data.size(), offset, offset + data.size());
  uint64_t position = file_.offset_of(entry) + offset;
  while (!data.empty()) {
    const ssize_t written = ::pwrite(descriptor_, data.data(), data.size(), static_cast<off_t>(position));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw write_error(file_.path(), errno);
    position += static_cast<uint64_t>(written);
    data = data.subspan(static_cast<size_t>(written));
  }
}

void SafetensorsPieces::sync() {
  if (::fsync(descriptor_) != 0) throw write_error(file_.path(), errno);
}

}  // namespace funicular::format
