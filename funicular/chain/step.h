#pragma once
// The steps of a chain: what each reads and makes, and the order that follows from that.

#include <map>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/chain/contents.h"

namespace funicular::chain {

/// A file or folder that a step reads.
struct Input {
  std::string option;
  fs::path path;
  std::string origin;  ///< "FILE:LINE" of the option, for errors
  Part part = Part::all;
  std::vector<std::string> former = {};  ///< earlier names of the option
  /// The places, in the list, of the steps that make it or something in it; filled by in_order.
  std::vector<size_t> makers = {};
};

/// A file or folder that a step makes.
struct Output {
  std::string option;
  fs::path path;
  std::string origin;
  /// Names within a folder that exist when the step is done, its product first. Empty: the product is the path itself, with all
  /// that is in it.
  std::vector<std::string> made = {};
  fs::path product() const { return made.empty() ? path : path / made.front(); }
};

/// One command of the chain.
struct Step {
  std::string name;
  std::string origin;  ///< "FILE:LINE"
  std::string command;
  int ranks = 1;
  std::vector<std::string> words;  ///< the command's options as they are given, "--NAME=VALUE"
  /// Options that change the result, and the paths of outputs: by name, given or by default. Together with the
  /// inputs' contents they are the meaning of the step.
  std::map<std::string, std::vector<std::string>> options;
  /// Options that change a sum's rounding and nothing else, and "ranks": given or by default.
  std::map<std::string, std::vector<std::string>> rounding = {};
  /// The names of the options that are given.
  std::vector<std::string> given;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  /// The places, in the list, of the steps that make what this one reads; filled by in_order.
  std::vector<size_t> needs = {};
};

/// Whether `path` is `folder` or lies in it, through symbolic links too and before they are made.
bool lies_in(const fs::path& path, const fs::path& folder);

/// Sorts the steps so that each follows the steps that make its inputs; otherwise keeps their order. Throws
/// InputError with FILE:LINE if two steps have one output, if a step reads what it makes, or if steps form a
/// circle. Also throws it if an input does not exist and no step makes it.
std::vector<Step> in_order(std::vector<Step> steps);

}  // namespace funicular::chain
