#include "funicular/model/class_names.h"

#include <map>
#include <utility>

namespace funicular::model {

namespace {

std::string without_spelling(std::string name) {
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-' || c == ' ') c = '_';
  }
  return name;
}

}  // namespace

std::vector<std::string> spelt_as(std::vector<std::string> own, const std::vector<std::string>& wanted) {
  if (own.size() != wanted.size()) return own;
  std::map<std::string, std::string> spellings;
  for (const std::string& name : wanted)
    if (!spellings.emplace(without_spelling(name), name).second) return own;
  std::vector<std::string> result;
  for (const std::string& name : own) {
    const auto found = spellings.extract(without_spelling(name));
    if (found.empty()) return own;
    result.push_back(found.mapped());
  }
  return result;
}

}  // namespace funicular::model
