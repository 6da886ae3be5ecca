#include "funicular/format/tokenizer_document.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/mapped_text.h"
#include "funicular/format/tokenizer_json.h"
#include "funicular/text/tokenizer.h"

namespace funicular::format {

namespace {

struct PeerNumber {
  uint64_t digits = 0;
  int exponent = 0;

  /// Adds a digit, unless the number would need more than 64 bits.
  bool take(char digit) {
    const auto value = static_cast<uint64_t>(digit - '0');
    constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
    if (digits > kMost / 10 || (digits == kMost / 10 && value > kMost % 10)) return false;
    digits = digits * 10 + value;
    return true;
  }
};

/// The exponent that a number states: the digits from `at`, with their sign. Larger ones count as 100,000.
int stated_exponent(const std::string& text, size_t at) {
  constexpr int kMost = 100'000;
  const bool negative = text[at] == '-';
  int exponent = 0;
  for (at += text[at] == '-' || text[at] == '+'; at < text.size(); ++at)
    exponent = std::min(kMost, exponent * 10 + (text[at] - '0'));
  return negative ? -exponent : exponent;
}

/// Reads a number as `tokenizers` reads it: its digits become a double, and so does the power of ten. The quotient is
/// not always the nearest double, and decides between equal sums of scores. Digits that need more than 64 bits are
/// left out. `nearest` stands for numbers that are too large.
double number_of_peer(const std::string& text, double nearest) {
  PeerNumber number;
  size_t at = text.starts_with('-') ? 1 : 0;
  const auto is_digit = [&] { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
  bool full = false;
  for (; is_digit(); ++at) {
    full = full || !number.take(text[at]);
    number.exponent += full;
  }
  if (at < text.size() && text[at] == '.') {
    ++at;
    for (full = false; is_digit(); ++at) {
      full = full || !number.take(text[at]);
      number.exponent -= !full;
    }
  }
  int exponent = number.exponent;
  if (at < text.size()) exponent += stated_exponent(text, at + 1);
  constexpr int kLargest = 308;
  if (exponent > kLargest) return nearest;
  auto value = static_cast<double>(number.digits);
  for (; exponent < -kLargest && value != 0.0; exponent += kLargest) value /= 1e308;
  const int power_of = std::min(std::abs(exponent), kLargest);
  const double power = std::strtod(("1e" + std::to_string(power_of)).c_str(), nullptr);
  value = exponent < 0 ? value / power : value * power;
  return text.starts_with('-') ? -value : value;
}

/// Makes JSON values of all but model.vocab. Gives up (false) where anything is unusual: the text is then read again in the
/// ordinary way, which says what is wrong.
class DocumentReader final : public nlohmann::json_sax<Json> {
 public:
  TokenizerDocument take() { return {std::move(root_), std::move(vocabulary_)}; }

  bool null() override { return put(nullptr) != nullptr; }
  bool boolean(bool value) override { return put(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return put(value) != nullptr; }
  bool number_float(number_float_t value, const string_t& text) override {
    return put(number_of_peer(text, value)) != nullptr;
  }
  bool string(string_t& value) override { return put(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_vocabulary_) return put(value) != nullptr;
    entries_.emplace_back(std::move(key_), value);
    return true;
  }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool start_object(size_t) override {
    const bool vocabulary = open_.size() == 2 && open_[1].name == "model" && key_ == "vocab";
    if (!vocabulary) return open(Json::object());
    if (!vocabulary_.empty() || put(Json::object()) == nullptr) return false;
    return in_vocabulary_ = true;
  }
  bool end_object() override {
    if (std::exchange(in_vocabulary_, false)) return sort_vocabulary();
    open_.pop_back();
    return true;
  }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  struct Open {
    Json* value;
    std::string name;  ///< its key
  };

  /// Stores a value and returns where it is. The pointer is valid until the object or list around it gets another
  /// value. Null if there is no place for the value.
  Json* put(Json value) {
    if (in_vocabulary_) return nullptr;
    if (open_.empty()) return &(root_ = std::move(value));
    Json& holder = *open_.back().value;
    if (holder.is_object()) return &(holder[key_] = std::move(value));
    holder.push_back(std::move(value));
    return &holder.back();
  }

  bool open(Json value) {
    if (open_.size() == kMaximumJsonDepth) return false;
    Json* const place = put(std::move(value));
    if (place) open_.push_back({place, key_});
    return place != nullptr;
  }

  bool sort_vocabulary() {
    vocabulary_.resize(entries_.size());
    std::vector<bool> taken(entries_.size());
    for (auto& [token, id] : entries_) {
      if (id >= entries_.size() || taken[id]) return false;
      taken[id] = true;
      vocabulary_[id] = std::move(token);
    }
    return true;
  }

  Json root_;
  std::vector<Open> open_;
  std::string key_;
  bool in_vocabulary_ = false;
  std::vector<std::pair<std::string, uint64_t>> entries_;
  std::vector<std::string> vocabulary_;
};

}  // namespace

TokenizerDocument read_tokenizer_document(const fs::path& path) {
  const std::string text = read_text(path, "a tokeniser in JSON");
  DocumentReader reader;
  if (Json::sax_parse(text.begin(), text.end(), &reader)) return reader.take();
  return {parse_json(text, path.string()), {}};
}

std::vector<std::string> take_vocabulary(TokenizerDocument& document, const std::string& origin) {
  if (!document.vocabulary.empty()) return std::move(document.vocabulary);
  const Json& model = document.root["model"];
  const auto ids = model.find("vocab");
  if (ids == model.end() || !ids->is_object())
    throw InputError(text::kTokenizerComponent, "{}: the model has no object \"vocab\" of tokens and ids",
                     origin);
  return read_vocabulary(*ids, origin);
}

}  // namespace funicular::format
