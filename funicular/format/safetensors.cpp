#include "funicular/format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/foreign_file.h"
#include "funicular/base/json.h"
#include "funicular/format/safetensors_text.h"

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

constexpr int kMaximumNesting = 64;  // of values that we do not know and skip

/// The header's statements about one tensor.
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
    refuse_foreign_weights();
    if (file_.size() < 8)
      fail(fmt::format("expected at least 8 bytes, found {}: the file is cut short or no safetensors file",
                       file_.size()));
    uint64_t length = 0;
    std::memcpy(&length, file_.data(), 8);
    if (length > kMaximumSafetensorsHeader)
      fail(fmt::format("the header's length is {} bytes, the limit {}: this is probably no safetensors file",
                       length, kMaximumSafetensorsHeader));
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

  /// Refuses a file without a plausible header if it is a known kind of other file (foreign_file.h).
  void refuse_foreign_weights() const {
    uint64_t length = 0;
    const std::string_view all(reinterpret_cast<const char*>(file_.data()), file_.size());
    if (all.size() > 8) std::memcpy(&length, all.data(), 8);
    if (all.size() > 8 && all[8] == '{' && length <= all.size() - 8) return;
    refuse_foreign(all, path_.string(), "weights in safetensors");
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

}  // namespace funicular::format
