#include "funicular/base/nvidia_driver.h"

#include <algorithm>
#include <sstream>

namespace funicular {

namespace {

/// The first word with a digit first and a point in it, of the line about the kernel module.
std::string version_in(const std::string& text) {
  std::istringstream words(text.substr(0, text.find('\n')));
  for (std::string word; words >> word;)
    if (word[0] >= '0' && word[0] <= '9' && word.find('.') != std::string::npos) return word;
  return "";
}

/// Returns what follows "Model:" in the text about a card.
std::string model_in(const std::string& text) {
  constexpr std::string_view kModel = "Model:";
  const size_t at = text.find(kModel);
  if (at == std::string::npos) return "";
  const size_t begin = text.find_first_not_of(" \t", at + kModel.size()), end = text.find('\n', at);
  return begin == std::string::npos || begin >= end ? "" : text.substr(begin, end - begin);
}

}  // namespace

std::optional<NvidiaDriver> read_nvidia_driver(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / "version", error)) return std::nullopt;
  NvidiaDriver driver;
  driver.version = version_in(read_file(folder / "version"));
  std::vector<fs::path> cards;
  for (const auto& entry : fs::directory_iterator(folder / "gpus", error)) cards.push_back(entry.path());
  std::sort(cards.begin(), cards.end());
  for (const fs::path& card : cards)
    if (fs::exists(card / "information", error))
      driver.cards.push_back(model_in(read_file(card / "information")));
  return driver;
}

}  // namespace funicular
