#pragma once
// Rewrites a text step by step, with the characters of the original that each byte comes from, or without.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/text/aligned_text.h"
#include "funicular/text/utf8.h"

namespace funicular::text {

/// Makes a new text from an old one. Without origins in the old text there are none in the new one.
class TextRewriter {
 public:
  explicit TextRewriter(AlignedText old) : old_(std::move(old)), aligned_(!old_.origin.empty()) {
    new_.text.reserve(old_.text.size() + 8);
  }

  const std::string& old() const { return old_.text; }
  /// Appends bytes [begin, end) of the old text.
  void keep(size_t begin, size_t end) {
    new_.text.append(old_.text, begin, end - begin);
    if (aligned_)
      new_.origin.insert(new_.origin.end(), old_.origin.begin() + static_cast<ptrdiff_t>(begin),
                         old_.origin.begin() + static_cast<ptrdiff_t>(end));
  }
  /// Appends bytes that come from where byte `place` of the old text comes from.
  void put(std::string_view bytes, size_t place) {
    new_.text.append(bytes);
    if (aligned_) new_.origin.resize(new_.text.size(), old_.origin[place]);
  }
  /// Calls use(code, begin, end) for each character of the old text.
  template <class Use>
  void for_each(Use use) {
    const char* const begin = old_.text.data();
    for (const char *at = begin, *end = begin + old_.text.size(); at < end;) {
      const auto place = static_cast<size_t>(at - begin);
      const uint32_t code = next_valid_code_point(at, end);
      use(code, place, static_cast<size_t>(at - begin));
    }
  }
  AlignedText take() { return std::move(new_); }

 private:
  AlignedText old_, new_;
  bool aligned_;
};

}  // namespace funicular::text
