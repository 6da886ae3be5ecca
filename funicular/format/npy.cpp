#include "funicular/format/npy.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "funicular/base/error.h"

namespace funicular::format {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

const char* npy_name_of(NpyType type) {
  return type == NpyType::float32 ? "<f4" : type == NpyType::int8 ? "|i1" : "|u1";
}

[[noreturn]] void refuse_npy(const fs::path& path, const std::string& what) {
  throw InputError("npy", "{}: {}", path.string(), what);
}

/// Reads a header such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }: keys in any order.
class NpyHeaderReader {
 public:
  NpyHeaderReader(std::string_view text, const fs::path& path) : left_(text), path_(path) {}

  void require(char c) {
    skip_blanks();
    if (left_.empty() || left_.front() != c) wrong();
    left_.remove_prefix(1);
  }
  bool take(char c) {
    skip_blanks();
    if (left_.empty() || left_.front() != c) return false;
    left_.remove_prefix(1);
    return true;
  }
  std::string_view quoted() {
    skip_blanks();
    if (left_.empty() || (left_.front() != '\'' && left_.front() != '"')) wrong();
    const size_t end = left_.find(left_.front(), 1);
    if (end == left_.npos) wrong();
    const std::string_view found = left_.substr(1, end - 1);
    left_.remove_prefix(end + 1);
    return found;
  }
  std::string_view word() {
    skip_blanks();
    const size_t end = left_.find_first_of(",} )");
    if (end == left_.npos) wrong();
    const std::string_view found = left_.substr(0, end);
    left_.remove_prefix(end);
    return found;
  }
  int64_t number() {
    const std::string_view digits = word();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0) wrong();
    return value;
  }
  [[noreturn]] void wrong() const {
    refuse_npy(path_, "the header is damaged; expected what numpy.save writes");
  }

 private:
  void skip_blanks() {
    while (!left_.empty() && (left_.front() == ' ' || left_.front() == '\n')) left_.remove_prefix(1);
  }

  std::string_view left_;
  const fs::path& path_;
};

NpyType npy_type_of(std::string_view name, const fs::path& path) {
  for (const NpyType type : {NpyType::float32, NpyType::int8, NpyType::uint8})
    if (name == npy_name_of(type)) return type;
  refuse_npy(path, fmt::format("holds numbers of type {}; expected float32, int8 or uint8", name));
}

}  // namespace

size_t npy_size(NpyType type) {
  return type == NpyType::float32 ? 4 : 1;
}

std::string npy_header(NpyType type, int64_t rows, int64_t columns) {
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}",
                                 npy_name_of(type), rows, columns);
  const size_t before = kMagic.size() + 4;
  text.resize(kNpyHeader - before - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return header + text;
}

NpyFile::NpyFile(const fs::path& path) : path_(path), file_(path) {
  const std::string_view text = file_.text();
  constexpr size_t kShort = 10, kLong = 12;  // bytes before the header's text, of version 1 and of later ones
  if (text.size() < kLong || !text.starts_with(kMagic))
    refuse_npy(path_, "is no .npy file; expected one that numpy.save or funicular embed wrote");
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<unsigned char>(text[at])); };
  const size_t version = byte(kMagic.size());
  if (version < 1 || version > 3) refuse_npy(path_, fmt::format("version {} of .npy is not known", version));
  const size_t begin = version == 1 ? kShort : kLong;
  const size_t size = byte(8) + (byte(9) << 8) + (version == 1 ? 0 : (byte(10) << 16) + (byte(11) << 24));
  if (size > text.size() - begin) refuse_npy(path_, "the file ends within its header");
  read_header(text.substr(begin, size));
  offset_ = begin + size;
  const size_t found = text.size() - offset_, number = npy_size(type_);
  const auto columns = static_cast<uint64_t>(columns_);
  const bool fits = columns > 0 && found % (columns * number) == 0 &&
                    found / (columns * number) == static_cast<uint64_t>(rows_);
  if (!fits)
    refuse_npy(path_,
               fmt::format("the header says {} rows of {} numbers of {} bytes, and {} bytes follow; is the "
                           "file complete?",
                           rows_, columns_, number, found));
}

void NpyFile::read_header(std::string_view header) {
  NpyHeaderReader reader(header, path_);
  bool by_columns = false, typed = false, shaped = false;
  reader.require('{');
  while (!reader.take('}')) {
    const std::string_view key = reader.quoted();
    reader.require(':');
    if (key == "descr") {
      type_ = npy_type_of(reader.quoted(), path_);
      typed = true;
    } else if (key == "fortran_order") {
      by_columns = reader.word() == "True";
    } else if (key == "shape") {
      reader.require('(');
      std::vector<int64_t> shape;
      while (!reader.take(')')) {
        shape.push_back(reader.number());
        reader.take(',');
        if (shape.size() > 2) break;
      }
      if (shape.size() != 2)
        refuse_npy(path_, "expected a table of two dimensions: rows and numbers per row");
      rows_ = shape[0];
      columns_ = shape[1];
      shaped = true;
    } else {
      reader.wrong();
    }
    reader.take(',');
  }
  if (!typed || !shaped) reader.wrong();
  if (by_columns) refuse_npy(path_, "lies column by column; write it again with numpy.ascontiguousarray");
  constexpr int64_t kMost = int64_t{1} << 24;  // so that sizes in bytes stay far from overflow
  if (columns_ < 1 || columns_ > kMost)
    refuse_npy(path_, fmt::format("has {} numbers per row; expected 1 to {}", columns_, kMost));
}

}  // namespace funicular::format
