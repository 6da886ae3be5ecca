#include "funicular/format/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json.h"

namespace funicular::format {

static_assert(std::endian::native == std::endian::little,
              "the format is little endian, and data is handed out as mapped");

namespace {

struct DTypeInfo {
  std::string_view name;
  int bits;
};
constexpr std::array<DTypeInfo, 22> kDTypes = {{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};

constexpr uint64_t kMaximumHeader = 100'000'000;  // the reference's limit
constexpr int kMaximumNesting = 64;               // of values that we do not know and skip

/// A name from an untrusted file as it may stand in a message: quoted, escaped and short.
std::string shown(std::string_view name) {
  std::string text = Json(std::string(name)).dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 100) text = text.substr(0, 96) + "…\"";
  return text;
}

std::string shown(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

/// What the header says about one tensor.
struct HeaderEntry {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

/// Reads the header as a stream of events: no tree is built, nothing recurses, and the first wrong value
/// stops it.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  std::vector<HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool null() override {
    if (where_ == Where::root_value && metadata_key_) return leave_to(Where::root);  // as absent
    return skip_or("a null");
  }
  bool boolean(bool value) override { return skip_or(value ? "true" : "false"); }
  bool number_integer(int64_t value) override {
    return skip_or(fmt::format("the negative number {}", value));
  }
  bool number_float(double, const std::string& text) override { return skip_or("the number " + text); }
  bool binary(Json::binary_t&) override { return skip_or("binary data"); }

  bool number_unsigned(uint64_t value) override {
    if (where_ == Where::shape) {
      if (value > INT64_MAX) return fail(fmt::format("the dimension {} does not fit into 63 bits", value));
      entries.back().shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (where_ == Where::offsets) {
      if (++offsets_ > 2) return fail("\"data_offsets\" has more than two numbers");
      (offsets_ == 1 ? entries.back().begin : entries.back().end) = value;
      return true;
    }
    return skip_or(fmt::format("the number {}", value));
  }

  bool string(std::string& value) override {
    if (where_ == Where::metadata_value) {
      metadata[key_] = value;
      return leave_to(Where::metadata);
    }
    if (where_ == Where::entry_value && key_ == "dtype") {
      const auto dtype = dtype_from_name(value);
      if (!dtype) return fail(fmt::format("unknown dtype {}", shown(value)));
      entries.back().dtype = *dtype;
      return leave_to(Where::entry);
    }
    return skip_or("the string " + shown(value));
  }

  bool start_object(size_t) override {
    switch (where_) {
      case Where::start:
        return leave_to(Where::root);
      case Where::root_value:
        if (!metadata_key_) entries.emplace_back().name = key_;
        fields_.clear();
        offsets_ = 0;
        return leave_to(metadata_key_ ? Where::metadata : Where::entry);
      default:
        return nest("an object");
    }
  }

  bool key(std::string& key) override {
    if (where_ == Where::skipped) return true;
    key_ = key;
    if (where_ == Where::root) {
      metadata_key_ = key == "__metadata__";
      if (!names_.insert(key).second) return fail("occurs twice in the header", shown(key));
      return leave_to(Where::root_value);
    }
    if (!fields_.insert(key).second) return fail(fmt::format("the key {} occurs twice", shown(key)));
    return leave_to(where_ == Where::metadata ? Where::metadata_value : Where::entry_value);
  }

  bool end_object() override {
    if (where_ == Where::skipped) return unnest();
    if (where_ == Where::entry) {
      for (const char* needed : {"dtype", "shape", "data_offsets"})
        if (!fields_.contains(needed)) return fail(fmt::format("the key \"{}\" is missing", needed));
      if (offsets_ != 2) return fail("\"data_offsets\" must hold two numbers");
      return leave_to(Where::root);
    }
    return leave_to(Where::root);  // of the metadata, or the end
  }

  bool start_array(size_t) override {
    if (where_ == Where::entry_value && key_ == "shape") {
      return leave_to(Where::shape);
    }
    if (where_ == Where::entry_value && key_ == "data_offsets") {
      return leave_to(Where::offsets);
    }
    return nest("an array");
  }

  bool end_array() override { return where_ == Where::skipped ? unnest() : leave_to(Where::entry); }

  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& error) override {
    problem = fmt::format("the header is not valid JSON (at its byte {}): {}", byte, error.what());
    return false;
  }

 private:
  enum class Where {
    start,
    root,         // expects a tensor's name or the end
    root_value,   // after a name
    entry,        // in a tensor's object, expects a key
    entry_value,  // after a key
    shape,
    offsets,
    metadata,
    metadata_value,
    skipped,  // within a value of a key of an entry that the format does not define: the reference ignores
              // those
  };

  bool leave_to(Where where) {
    where_ = where;
    return true;
  }

  bool fail(const std::string& message) { return fail(message, ""); }
  bool fail(const std::string& message, const std::string& subject) {
    if (!subject.empty()) {
      problem = subject + " " + message;
    } else if (metadata_key_ && where_ != Where::root) {
      problem = "__metadata__: " + message;
    } else {
      problem = entries.empty() ? message : fmt::format("tensor {}: {}", shown(entries.back().name), message);
    }
    return false;
  }

  std::string expected() const {
    switch (where_) {
      case Where::start:
        return "expected an object";
      case Where::root_value:
        return fmt::format("{}: expected an object", shown(key_));
      case Where::shape:
        return "\"shape\": expected non-negative integers";
      case Where::offsets:
        return "\"data_offsets\": expected non-negative integers";
      case Where::metadata_value:
        return fmt::format("{}: expected a string", shown(key_));
      default:
        return fmt::format("\"{}\": expected {}", key_,
                           key_ == "dtype" ? "a string" : "an array of integers");
    }
  }

  bool defined_key() const { return key_ == "dtype" || key_ == "shape" || key_ == "data_offsets"; }

  /// A scalar that is no part of what the format defines.
  bool skip_or(const std::string& found) {
    if (where_ == Where::skipped) return true;
    if (where_ == Where::entry_value && !defined_key()) return leave_to(Where::entry);
    const std::string message = fmt::format("{}, found {}", expected(), found);
    return where_ == Where::root_value ? fail(message.substr(message.find(": ") + 2), shown(key_) + ":")
                                       : fail(message);
  }

  bool nest(const std::string& found) {
    const bool skip = where_ == Where::skipped || (where_ == Where::entry_value && !defined_key());
    if (!skip) return skip_or(found);
    if (++depth_ > kMaximumNesting) return fail("nested too deeply");
    return leave_to(Where::skipped);
  }

  bool unnest() {
    if (--depth_ == 0) where_ = Where::entry;
    return true;
  }

  Where where_ = Where::start;
  std::string key_;
  bool metadata_key_ = false;
  int depth_ = 0, offsets_ = 0;
  std::set<std::string> names_, fields_;
};

class HeaderChecker {
 public:
  HeaderChecker(const fs::path& path, std::span<const std::byte> file) : path_(path), file_(file) {}

  HeaderReader read() const {
    if (file_.size() < 8)
      fail(fmt::format("expected at least 8 bytes, found {}: the file is cut short or no safetensors file",
                       file_.size()));
    uint64_t length = 0;
    std::memcpy(&length, file_.data(), 8);
    if (length > kMaximumHeader)
      fail(fmt::format("the header's length is {} bytes, the limit {}: this is probably no safetensors file",
                       length, kMaximumHeader));
    if (length > file_.size() - 8)
      fail(fmt::format("the header should have {} bytes, but only {} follow: the file is cut short", length,
                       file_.size() - 8));
    const std::string_view text(reinterpret_cast<const char*>(file_.data()) + 8, length);
    if (text.empty() || text[0] != '{')
      fail("the header does not begin with '{': this is no safetensors file");
    // The JSON library takes a zero byte for the end of its input and would not look at what follows.
    if (text.find('\0') != text.npos) fail("the header holds a zero byte");
    HeaderReader reader;
    if (!Json::sax_parse(text.begin(), text.end(), &reader)) fail(reader.problem);
    return reader;
  }

  /// Sorts by position and checks that the tensors cover the data exactly.
  std::vector<TensorEntry> place(std::vector<HeaderEntry> header) const {
    std::sort(header.begin(), header.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    uint64_t length = 0;
    std::memcpy(&length, file_.data(), 8);
    const std::span<const std::byte> data = file_.subspan(8 + length);
    std::vector<TensorEntry> entries;
    entries.reserve(header.size());
    uint64_t end = 0;
    for (HeaderEntry& entry : header) {
      check(entry, end, data.size());
      end = entry.end;
      entries.push_back({std::move(entry.name), entry.dtype, std::move(entry.shape),
                         data.subspan(entry.begin, entry.end - entry.begin)});
    }
    if (end != data.size())
      fail(fmt::format("the tensors end at byte {} of the data, but it has {}: {} bytes belong to no tensor",
                       end, data.size(), data.size() - end));
    return entries;
  }

 private:
  void check(const HeaderEntry& entry, uint64_t previous_end, uint64_t available) const {
    const uint64_t begin = entry.begin, end = entry.end;
    const std::string name = shown(entry.name);
    if (begin > end)
      fail(fmt::format("tensor {}: its data begins at {}, after its end {}", name, begin, end));
    if (end > available)
      fail(fmt::format(
          "tensor {}: its data ends at byte {}, but the file has only {} bytes of data: it is cut short",
          name, end, available));
    if (begin < previous_end)
      fail(fmt::format("tensor {}: its data begins at {}, within that of the one before, which ends at {}",
                       name, begin, previous_end));
    if (begin > previous_end)
      fail(fmt::format("tensor {}: its data begins at {}, the one before ends at {}: a hole", name, begin,
                       previous_end));
    const auto bytes = tensor_bytes(entry.dtype, entry.shape);
    if (!bytes)
      fail(fmt::format(
          "tensor {}: the size of shape {} with dtype {} overflows or is no whole number of bytes", name,
          shown(entry.shape), dtype_name(entry.dtype)));
    if (*bytes != end - begin)
      fail(fmt::format("tensor {}: shape {} with dtype {} takes {} bytes, its offsets hold {}", name,
                       shown(entry.shape), dtype_name(entry.dtype), *bytes, end - begin));
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw InputError("safetensors", "{}: {}", path_.string(), message);
  }

  const fs::path& path_;
  std::span<const std::byte> file_;
};

}  // namespace

std::string_view dtype_name(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)].name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i)
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

int dtype_bits(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)].bits;
}

std::optional<uint64_t> tensor_bytes(DType dtype, std::span<const int64_t> shape) {
  uint64_t bits = 1;
  for (const int64_t dimension : shape)
    if (dimension < 0 || __builtin_mul_overflow(bits, static_cast<uint64_t>(dimension), &bits))
      return std::nullopt;
  if (__builtin_mul_overflow(bits, static_cast<uint64_t>(dtype_bits(dtype)), &bits) || bits % 8 != 0)
    return std::nullopt;
  return bits / 8;
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : path_(path), file_(path) {
  const HeaderChecker checker(path_, file_.bytes());
  HeaderReader header = checker.read();
  metadata_ = std::move(header.metadata);
  entries_ = checker.place(std::move(header.entries));
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  if (const TensorEntry* entry = find(name)) return *entry;
  std::vector<std::string> names;
  for (const TensorEntry& entry : entries_) names.push_back(entry.name);
  const std::string near = nearest(name, names.data(), names.data() + names.size());
  throw InputError(
      "safetensors", "{}: there is no tensor {}{}", path_.string(), shown(name),
      near.empty() ? fmt::format(" among its {}", entries_.size()) : "; did you mean " + shown(near) + "?");
}

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

  [[noreturn]] void fail(const char* what) {
    broken = true;
    throw RunError("safetensors", "cannot {} {}: {}", what, path.string(), errno_text(errno));
  }

  void put(uint64_t offset, const void* data, uint64_t count) {
    const char* cursor = static_cast<const char*>(data);
    while (count > 0) {
      const ssize_t done = ::pwrite(descriptor, cursor, count, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail("write");
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
      if (count <= 0) fail("read back");
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
  if (text.size() > kMaximumHeader)
    throw InputError("safetensors", "the header takes {} bytes, the format allows {}: too many tensors",
                     text.size(), kMaximumHeader);
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
  state.temporary = path.parent_path() / fmt::format(".{}.tmp{}", path.filename().string(), ::getpid());
  state.descriptor = ::open(state.temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (state.descriptor < 0) state.fail("write");
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
  if (::fsync(state.descriptor) != 0) state.fail("flush to the disk");
  if (::rename(state.temporary.c_str(), state.path.c_str()) != 0) state.fail("rename the temporary file to");
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
  if (error)
    throw RunError("safetensors", "cannot make {} of {} bytes: {}", path.string(), size, error.message());
}

SafetensorsPieces::SafetensorsPieces(const fs::path& path)
    : file_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {
  if (descriptor_ < 0)
    throw RunError("safetensors", "cannot write {}: {}", path.string(), std::strerror(errno));
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
    if (written <= 0)
      throw RunError("safetensors", "cannot write {}: {}", file_.path().string(), std::strerror(errno));
    position += static_cast<uint64_t>(written);
    data = data.subspan(static_cast<size_t>(written));
  }
}

void SafetensorsPieces::sync() {
  if (::fsync(descriptor_) != 0)
    throw RunError("safetensors", "cannot flush {}: {}", file_.path().string(), std::strerror(errno));
}

}  // namespace funicular::format
