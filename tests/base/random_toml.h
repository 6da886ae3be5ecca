#pragma once
// Random TOML files of options, whole and damaged.

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace funicular {

/// Value and line of a key.
struct ExpectedOption {
  std::vector<std::string> values;
  size_t line = 0;
  bool operator==(const ExpectedOption&) const = default;
};
struct RandomToml {
  std::string text;
  std::map<std::string, std::map<std::string, ExpectedOption>>
      tables;  ///< by the name of the table; "": those before all tables
};

namespace random_toml {

inline const std::string& one_of(const std::vector<std::string>& list, std::mt19937_64& random) {
  return list[random() % list.size()];
}

/// A scalar as it is written; `value` becomes what it means.
inline std::string scalar(std::mt19937_64& random, std::string& value) {
  static const std::vector<std::pair<const char*, const char*>> kScalars{
      {"1", "1"},
      {"-7", "-7"},
      {"0x1F", "31"},
      {"1_000", "1000"},
      {"9223372036854775807", "9223372036854775807"},
      {"true", "true"},
      {"false", "false"},
      {"0.5", "0.5"},
      {"1e-4", "0.0001"},
      {"inf", "inf"},
      {"\"a b\"", "a b"},
      {"''", ""},
      {"'c#=[\"'", "c#=[\""},
      {"\"\\u00e9\\n\\\"\"", "\u00E9\n\""},
      {"\"\"\"\n[x]\\\n  y\"\"\"", "[x]y"},
      {"'''q''r\n'''", "q''r\n"}};
  const auto& [written, means] = kScalars[random() % kScalars.size()];
  value = means;
  return written;
}

inline std::string value(std::mt19937_64& random, std::vector<std::string>& values) {
  values.assign(1, "");
  if (random() % 4) return scalar(random, values[0]);
  values.resize(random() % 4);
  std::string text = "[";
  for (std::string& one : values)
    text += scalar(random, one) + one_of({",", " , ", ",\n", ", # a comment ]\n"}, random);
  return text + "]";
}

}  // namespace random_toml

/// Each of `tables` stands in it or does not. Every key has a value that options can have.
inline RandomToml make_random_toml(std::mt19937_64& random, const std::vector<std::string>& tables,
                                   bool top = true) {
  RandomToml file;
  int number = 0;
  const auto end = [&] { return random_toml::one_of({"\n", "\n\n", "\r\n", " # [no.table]\n"}, random); };
  const auto keys = [&](const std::string& table) {
    for (uint64_t left = random() % 4; left > 0; --left) {
      const std::string key = "k" + std::to_string(number++);
      ExpectedOption& option = file.tables[table][key];
      option.line = 1 + static_cast<size_t>(std::count(file.text.begin(), file.text.end(), '\n'));
      file.text += (random() % 4 ? key : "\"" + key + "\"") + " = " +
                   random_toml::value(random, option.values) + end();
    }
  };
  if (top) keys("");
  for (const std::string& table : tables) {
    if (random() % 4 == 0) continue;
    file.text += "[" + table + "]" + end();
    file.tables[table];
    keys(table);
  }
  return file;
}

/// With bytes and pieces of TOML put in, doubled or taken away.
inline std::string damaged_toml(std::string text, std::mt19937_64& random) {
  static const std::vector<std::string> kPieces{"[",
                                                "]",
                                                "[[",
                                                "]]",
                                                "{",
                                                "}",
                                                "=",
                                                ".",
                                                ",",
                                                "\"",
                                                "'",
                                                "\"\"\"",
                                                "'''",
                                                "\\",
                                                "#",
                                                "\n",
                                                "\r",
                                                "\r\n",
                                                "\v",
                                                "a",
                                                "a.b.",
                                                "a = 1\n",
                                                "\u00E9",
                                                "\u2028",
                                                "\x85",
                                                "\xFF",
                                                std::string(1, 0),
                                                "1979-05-27T07:32:00.9Z",
                                                "0x",
                                                "1e999",
                                                "99999999999999999999",
                                                "nan",
                                                "+",
                                                "_",
                                                "\\U0010FFFF",
                                                "\\uD800",
                                                "\n[",
                                                "[a",
                                                "{a="};
  for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
    const size_t at = random() % (text.size() + 1), length = 1 + random() % 8;
    switch (random() % 5) {
      case 0:
        text.insert(at, random_toml::one_of(kPieces, random));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(random() % (text.size() + 1), text.substr(at, length));
        break;
      case 3:
        text.resize(at);
        break;
      default:
        for (uint64_t times = random() % 300; times > 0; --times)
          text.insert(at, random_toml::one_of({kPieces[random() % 8], kPieces[19], kPieces[20]}, random));
    }
  }
  return text;
}

/// A header, a key or a value of many levels; `levels` becomes their number.
inline std::string nested_toml(std::mt19937_64& random, int& levels) {
  const auto times = [&](std::string_view text, int each = 1) {
    std::string all;
    for (uint64_t left = random() % 200; left > 0; --left) all += text, levels += each;
    return all;
  };
  const auto closed = [&](std::string_view open, char close, int each) {
    std::string all = times(open, each);
    const size_t count = all.size() / open.size();
    return all + (open.back() == '=' ? "1" : "") + std::string(count, close);
  };
  switch (random() % 5) {
    case 0:
      return "\n[" + times("n.") + "n]\n" + times("m . ") + "m = 1\n";
    case 1:
      return "\n[[" + times("'n'.") + "n]]\nm = {" + times("a.") + "a = 1}\n";
    case 2:
      return "\nv = [" + closed("[", ']', 1) + "]\n";
    case 3:
      return "\nv = [1.5, {x = {a.b=" + closed("{a.b=", '}', 2) + "}}]\n";
    default:
      return "\nv = \"" + times("[a.", 0) + "\\\"" + times("{", 0) + "\"  # " + times("[", 0) + "\n";
  }
}

}  // namespace funicular
