#include "funicular/format/word_vectors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "funicular/base/hash.h"
#include "funicular/base/mapped_text.h"
#include "funicular/base/number.h"
#include "funicular/base/temporary.h"
#include "funicular/base/text_encoding.h"
#include "funicular/text/utf8.h"

namespace funicular::format {

namespace {

constexpr std::string_view kVectors = "vectors";
constexpr uint64_t kMagic = 0x31'63'65'76'6e'75'66'2eu;
constexpr uint64_t kAlignment = 64;

/// The binary file: this, the ends of the words, their letters, and at a multiple of kAlignment the vectors.
struct BinaryHeader {
  uint64_t magic = kMagic, most_words = 0;
  uint64_t text_bytes = 0, text_hash = 0;  ///< of the part of the text that was read
  uint64_t words = 0, size = 0, letters = 0;
  uint64_t hash = 0;  ///< of the numbers before and of all that follows
};

uint64_t hash_of(BinaryHeader header, std::span<const std::string_view> contents) {
  header.hash = 0;
  StreamHash hash;
  hash.update(&header, sizeof header);
  for (const std::string_view part : contents) hash.update(part.data(), part.size());
  return hash.digest();
}

struct BinaryPlaces {
  uint64_t ends, letters, vectors, total;
};

/// Returns the offsets of the parts; none if the header's numbers make no sense.
std::optional<BinaryPlaces> places_of(const BinaryHeader& header) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  if (header.words == 0 || header.size == 0 || header.words > kMost / sizeof(float) / header.size ||
      header.letters > kMost || header.words > kMost)
    return std::nullopt;
  BinaryPlaces places{};
  places.ends = sizeof(BinaryHeader);
  places.letters = places.ends + header.words * sizeof(uint64_t);
  places.vectors = (places.letters + header.letters + kAlignment - 1) / kAlignment * kAlignment;
  places.total = places.vectors + header.words * header.size * sizeof(float);
  return places;
}

bool parse_count(std::string_view text, int64_t& value) {
  value = read_whole_number<int64_t>(text).value_or(0);
  return value > 0;
}

/// The contents of the binary file, as read from the text.
struct ReadVectors {
  std::vector<uint64_t> ends;
  std::string letters;
  std::vector<float> vectors;
  uint64_t text_bytes = 0;
  size_t size = 0;
};

/// Reads the first `most_words` words of a text and their vectors.
class VectorTextReader {
 public:
  VectorTextReader(const fs::path& path, int64_t most_words)
      : path_(path), most_words_(most_words), lines_(std::string(kVectors), path) {}

  ReadVectors read(std::string_view text) {
    std::string_view rest = text;
    for (int64_t number = 1; !rest.empty() && words() < most_words_; ++number) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      while (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.empty()) add(line, number);
    }
    read_.text_bytes = text.size() - rest.size();
    read_.size = lines_.size();
    require_whole(rest.empty());
    return std::move(read_);
  }

 private:
  int64_t words() const { return static_cast<int64_t>(read_.ends.size()); }

  void add(std::string_view line, int64_t number) {
    if (!text::is_valid_utf8(line))
      throw InputError(kVectors, "{}:{}: expected UTF-8, found other bytes; {}", path_.string(), number,
                       conversion_remedy(line, path_.string()));
    if (!lines_.read(line, number)) return;
    if (!seen_.insert(std::string(lines_.word())).second) {
      ++repeated_;
      return;
    }
    double squares = 0;
    for (const float value : lines_.vector()) squares += double{value} * value;
    const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
    for (const float value : lines_.vector()) read_.vectors.push_back(static_cast<float>(value * scale));
    read_.letters += lines_.word();
    read_.ends.push_back(read_.letters.size());
  }

  void require_whole(bool ended) const {
    if (words() == 0)
      throw InputError(
          kVectors,
          "{}: no word vectors; expected lines of a word and its numbers, as GloVe and word2vec write "
          "them as text (funicular vectors trains some)",
          path_.string());
    if (ended && lines_.promised() && words() + repeated_ < std::min(*lines_.promised(), most_words_))
      throw InputError(kVectors, "{}: the first line promises {} words, found {}; is the file cut short?",
                       path_.string(), *lines_.promised(), words() + repeated_);
  }

  const fs::path& path_;
  int64_t most_words_, repeated_ = 0;
  WordVectorLines lines_;
  std::unordered_set<std::string> seen_;
  ReadVectors read_;
};

/// Throws InputError if `binary` exists and this program did not make it. A half-written file of ours also has our
/// first bytes, or is empty.
void refuse_to_replace_others(const fs::path& binary) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(binary, error))) return;
  if (fs::is_regular_file(binary, error)) {
    const MappedFile file(binary);
    uint64_t magic = 0;
    if (file.text().size() >= sizeof magic) std::memcpy(&magic, file.text().data(), sizeof magic);
    if (file.text().empty() || magic == kMagic) return;
  }
  throw InputError(kVectors, "{} is there, and is no file of mapped vectors; give another name, or remove it",
                   binary.string());
}

void write_binary(const ReadVectors& read, BinaryHeader header, const fs::path& binary) {
  header.words = read.ends.size();
  header.size = read.size;
  header.letters = read.letters.size();
  header.text_bytes = read.text_bytes;
  const BinaryPlaces places = places_of(header).value();
  const std::string gap(places.vectors - places.letters - header.letters, '\0');
  const std::array<std::string_view, 4> parts{
      std::string_view(reinterpret_cast<const char*>(read.ends.data()), read.ends.size() * sizeof(uint64_t)),
      read.letters, gap,
      std::string_view(reinterpret_cast<const char*>(read.vectors.data()),
                       read.vectors.size() * sizeof(float))};
  header.hash = hash_of(header, parts);
  Temporary temporary(binary, Temporary::Kind::file);
  FileWriter writer(temporary.path(), Opening::replace, binary);
  writer.write(&header, sizeof header);
  for (const std::string_view part : parts) writer.write(part);
  writer.close(/*sync=*/true);
  temporary.rename_file();
}

}  // namespace

WordVectorLines::WordVectorLines(std::string component, fs::path file)
    : component_(std::move(component)), file_(std::move(file)) {}

void WordVectorLines::split(std::string_view line) {
  fields_.clear();
  for (size_t at = 0; at < line.size();) {
    const size_t begin = std::min(line.find_first_not_of(" \t", at), line.size());
    at = std::min(line.find_first_of(" \t", begin), line.size());
    if (at > begin) fields_.push_back(line.substr(begin, at - begin));
  }
}

bool WordVectorLines::read(std::string_view line, int64_t number) {
  split(line);
  int64_t words = 0, size = 0;
  if (number == 1 && fields_.size() == 2 && parse_count(fields_[0], words) && parse_count(fields_[1], size)) {
    promised_ = words;
    size_ = static_cast<size_t>(size);
    return false;
  }
  if (size_ == 0 && fields_.size() > 1) size_ = fields_.size() - 1;
  const size_t more = fields_.size() > size_ + 1 ? fields_.size() - size_ - 1 : 0;
  const bool with_blanks = more > 0 && !read_float(fields_[1]);
  if (size_ == 0)
    throw InputError(component_,
                     "{}:{}: expected a word and its numbers with blanks between them, found {} fields. Is "
                     "this a text file of word vectors, as GloVe and word2vec write?",
                     file_.string(), number, fields_.size());
  if (fields_.size() != size_ + 1 && !with_blanks)
    throw InputError(component_,
                     "{}:{}: expected a word and {} numbers as before, found {} fields; complete or delete "
                     "this line. If it is right, correct the lines before it",
                     file_.string(), number, size_, fields_.size());
  const std::string_view last = fields_[with_blanks ? more : 0];
  word_ =
      std::string_view(fields_[0].data(), static_cast<size_t>(last.data() + last.size() - fields_[0].data()));
  vector_.resize(size_);
  for (size_t i = 0; i < size_; ++i) {
    const std::string_view field = fields_[fields_.size() - size_ + i];
    const std::optional<float> value = read_float(field);
    if (!value)
      throw InputError(component_, "{}:{}: expected a finite number, found \"{}\"", file_.string(), number,
                       field);
    vector_[i] = *value;
  }
  return true;
}

WordVectors WordVectors::open(const fs::path& text, int64_t most_words, const fs::path& binary) {
  if (most_words < 1)
    throw InputError(kVectors, "expected at least one word to be read, found {}", most_words);
  const MappedText file(text);
  const std::string_view content = file.content();
  WordVectors vectors;
  const auto fits = [&] {
    return vectors.map(binary) && vectors.most_words_ == static_cast<uint64_t>(most_words) &&
           vectors.text_bytes_ <= content.size() &&
           // A text that ended before the limit may have grown.
           (vectors.text_bytes_ == content.size() || vectors.words_ == most_words) &&
           hash_bytes(content.substr(0, vectors.text_bytes_)) == vectors.fingerprint_;
  };
  if (fits()) return vectors;
  const ReadVectors read = VectorTextReader(text, most_words).read(content);
  BinaryHeader header;
  header.most_words = static_cast<uint64_t>(most_words);
  header.text_hash = hash_bytes(content.substr(0, read.text_bytes));
  refuse_to_replace_others(binary);
  write_binary(read, header, binary);
  vectors = WordVectors();
  if (!vectors.map(binary))
    throw RunError(kVectors, "{}: was written and cannot be read; is the disk damaged?", binary.string());
  return vectors;
}

bool WordVectors::map(const fs::path& binary) {
  std::error_code error;
  if (!fs::is_regular_file(binary, error)) return false;
  file_ = MappedFile(binary);
  const std::string_view bytes = file_.text();
  BinaryHeader header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::optional<BinaryPlaces> places = header.magic == kMagic ? places_of(header) : std::nullopt;
  if (!places || bytes.size() != places->total) return false;
  const std::string_view contents = bytes.substr(sizeof header);
  if (hash_of(header, std::span(&contents, 1)) != header.hash) return false;
  words_ = static_cast<int64_t>(header.words);
  size_ = static_cast<int64_t>(header.size);
  fingerprint_ = header.text_hash;
  text_bytes_ = header.text_bytes;
  most_words_ = header.most_words;
  ends_ = reinterpret_cast<const uint64_t*>(bytes.data() + places->ends);
  letters_ = bytes.data() + places->letters;
  vectors_ = reinterpret_cast<const float*>(bytes.data() + places->vectors);
  uint64_t before = 0;
  for (int64_t i = 0; i < words_; ++i) {
    if (ends_[i] < before || ends_[i] > header.letters) return false;
    before = ends_[i];
  }
  numbers_.clear();
  numbers_.reserve(static_cast<size_t>(words_));
  for (int64_t i = 0; i < words_; ++i) numbers_.emplace(word(i), i);
  return true;
}

std::string_view WordVectors::word(int64_t number) const {
  const uint64_t begin = number == 0 ? 0 : ends_[number - 1];
  return {letters_ + begin, ends_[number] - begin};
}

std::optional<int64_t> WordVectors::find(std::string_view word) const {
  const auto found = numbers_.find(word);
  if (found == numbers_.end()) return std::nullopt;
  return found->second;
}

}  // namespace funicular::format
