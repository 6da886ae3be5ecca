#include "funicular/cli/corpora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "funicular/base/error.h"
#include "funicular/base/number.h"

namespace funicular::cli {

namespace {

double weight_from(std::string_view text) {
  if (const auto value = read_number(text)) return *value;
  throw InputError("usage", "--data-weights expects numbers such as 0.7 0.3, found \"{}\"", text);
}

}  // namespace

void CorporaOptions::declare(Arguments& arguments) {
  arguments
      .add("train", "STORE", stores, Effect::input,
           "token store to train on (funicular tokenize makes it), or several, which are mixed")
      .alias("train-file")
      .formerly("data")
      .required();
  arguments
      .add(
          "data-weights", "SHARE", weight_texts, Effect::result,
          "share of the sequences from each store of --train, in their order; they sum to 1. A store is read "
          "again, in another order, when it has been used up")
      .default_text("by their sizes");
}

std::vector<double> CorporaOptions::weights() const {
  std::vector<double> found;
  for (std::string_view text : weight_texts)
    for (bool more = true; more;) {
      const size_t comma = text.find(',');
      found.push_back(weight_from(text.substr(0, comma)));
      more = comma != text.npos;
      if (more) text.remove_prefix(comma + 1);
    }
  if (!found.empty() && found.size() != stores.size())
    throw InputError("usage",
                     "--data-weights has {} numbers, and --train {} stores; give one number for each",
                     found.size(), stores.size());
  if (found.size() == 1 && found[0] != 1)
    throw InputError("usage", "--data-weights {} is for one store, whose weight is 1; leave it out",
                     found[0]);
  return found;
}

std::vector<data::MixturePart> CorporaOptions::parts(const Datasets& datasets,
                                                     const std::vector<double>& weights) const {
  int64_t all = 0;
  for (const auto& dataset : datasets) all += dataset->size();
  std::vector<data::MixturePart> parts;
  for (size_t i = 0; i < datasets.size(); ++i) {
    for (size_t before = 0; before < i; ++before)
      if (datasets[before]->fingerprint() == datasets[i]->fingerprint())
        throw InputError("usage", "--train {} and {} hold the same; give it once, with the weight of both",
                         stores[before].string(), stores[i].string());
    const double own = static_cast<double>(datasets[i]->size()) / static_cast<double>(all);
    parts.push_back({.name = stores[i].string(),
                     .samples = datasets[i]->size(),
                     .weight = weights.empty() ? own : weights[i]});
  }
  return parts;
}

OrderedJson CorporaOptions::description() const {
  if (stores.size() == 1) return stores[0].string();
  OrderedJson all = OrderedJson::array();
  for (const fs::path& store : stores) all.push_back(store.string());
  return all;
}

std::string describe_weights(const std::vector<data::MixturePart>& parts) {
  std::vector<std::string> texts;
  for (const data::MixturePart& part : parts) texts.push_back(fmt::format("{:.9g}", part.weight));
  return fmt::format("{}", fmt::join(texts, " "));
}

}  // namespace funicular::cli
