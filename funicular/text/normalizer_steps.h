#pragma once
// The normalisers of a tokenizer.json other than BERT's, as steps that follow each other.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/text/aligned_text.h"
#include "funicular/text/character_map.h"

namespace funicular::text {

struct NormalizerStep {
  enum Kind : uint8_t {
    precompiled,
    nfc,
    nfd,
    nfkc,
    nfkd,
    nmt,
    lowercase,
    strip,
    strip_accents,
    prepend,
    replace_text,
    replace_blanks,      ///< two blanks or more
    replace_white_space  ///< two white spaces or more, or a line break or a tab
  };
  Kind kind = nfc;
  bool left = true, right = true;                     ///< of strip
  std::string pattern = {};                           ///< of replace_text; not empty
  std::string content = {};                           ///< what is prepended, or replaces
  std::shared_ptr<const CharacterMap> map = nullptr;  ///< of precompiled

  bool operator==(const NormalizerStep& other) const;
};

/// Applies the steps to valid UTF-8. Without origins in the text there are none afterwards.
void apply_steps(const std::vector<NormalizerStep>& steps, AlignedText& text);
std::string normalize(std::string_view utf8, const std::vector<NormalizerStep>& steps);

}  // namespace funicular::text
