#include "funicular/task/retrieval.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/mapped_text.h"
#include "funicular/model/sentence_encoder.h"
#include "funicular/objective/metrics.h"
#include "funicular/task/nearest.h"
#include "funicular/task/registry.h"

namespace funicular::task {

namespace {

[[noreturn]] void refuse_line(const fs::path& file, int64_t line, const std::string& what) {
  throw InputError("retrieval", "{}:{}: {}", file.string(), line, what);
}

/// Calls use(line, number) for each line that is not empty.
template <class Use>
void for_each_text_line(const fs::path& file, const Use& use) {
  const MappedText text(file);
  std::string_view rest = text.content();
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) use(line, number);
  }
}

std::string text_member(const Json& object, const char* key, const fs::path& file, int64_t line) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string())
    refuse_line(file, line, fmt::format("expected an object with the text \"{}\"", key));
  return found->get<std::string>();
}

/// Title and text with a blank between them; either may be empty.
std::string whole_text(const Json& object, const fs::path& file, int64_t line) {
  const std::string text = text_member(object, "text", file, line);
  const auto title = object.find("title");
  if (title == object.end() || !title->is_string() || title->get<std::string>().empty()) return text;
  return text.empty() ? title->get<std::string>() : title->get<std::string>() + " " + text;
}

RetrievalSet::Texts read_texts(const fs::path& file,
                               const std::function<bool(const std::string& id)>& wanted) {
  RetrievalSet::Texts read;
  std::set<std::string> seen;
  for_each_text_line(file, [&](std::string_view line, int64_t number) {
    const Json object = parse_json(line, fmt::format("{}:{}", file.string(), number));
    if (!object.is_object()) refuse_line(file, number, "expected an object with \"_id\" and \"text\"");
    std::string id = text_member(object, "_id", file, number);
    if (!seen.insert(id).second) refuse_line(file, number, fmt::format("the id {} was there before", id));
    if (!wanted(id)) return;
    read.texts.push_back(whole_text(object, file, number));
    read.ids.push_back(std::move(id));
  });
  return read;
}

using Relevant = std::map<std::string, std::set<std::string>>;

Relevant read_qrels(const fs::path& file) {
  Relevant found;
  for_each_text_line(file, [&](std::string_view line, int64_t number) {
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (first == line.npos || second == line.npos)
      refuse_line(file, number, "expected query-id, corpus-id and score with tabs between them");
    const std::string_view score = line.substr(second + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(score.data(), score.data() + score.size(), value);
    if (error != std::errc() || end != score.data() + score.size()) {
      if (number == 1) return;  // the header
      refuse_line(file, number, fmt::format("expected a number as score, found {}", score));
    }
    if (value > 0)
      found[std::string(line.substr(0, first))].emplace(line.substr(first + 1, second - first - 1));
  });
  if (found.empty()) throw InputError("retrieval", "{}: no relevant document is named", file.string());
  return found;
}

double gain_at(size_t rank) {
  return 1 / std::log2(static_cast<double>(rank) + 2);
}

/// The scores of one query at one depth.
struct QueryScores {
  double accuracy = 0, precision = 0, recall = 0, ndcg = 0, reciprocal = 0, average = 0;
};

QueryScores score_query(const RankedQuery& query, size_t k) {
  QueryScores found;
  double hits = 0, gains = 0, best = 0, precisions = 0;
  for (size_t rank = 0; rank < std::min(k, query.hits.size()); ++rank) {
    if (!query.hits[rank]) continue;
    if (hits == 0) found.reciprocal = 1 / static_cast<double>(rank + 1);
    ++hits;
    gains += gain_at(rank);
    precisions += hits / static_cast<double>(rank + 1);
  }
  const auto relevant = static_cast<size_t>(query.relevant);
  for (size_t rank = 0; rank < std::min(k, relevant); ++rank) best += gain_at(rank);
  found.accuracy = hits > 0 ? 1 : 0;
  found.precision = hits / static_cast<double>(k);
  found.recall = hits / static_cast<double>(relevant);
  found.ndcg = gains / best;
  found.average = precisions / static_cast<double>(std::min(k, relevant));
  return found;
}

}  // namespace

RetrievalSet read_retrieval_set(const fs::path& folder, const std::string& split) {
  const Relevant relevant = read_qrels(folder / "qrels" / (split + ".tsv"));
  RetrievalSet set;
  set.documents = read_texts(folder / "corpus.jsonl", [](const std::string&) { return true; });
  set.queries =
      read_texts(folder / "queries.jsonl", [&](const std::string& id) { return relevant.contains(id); });
  for (const std::string& id : set.queries.ids) set.relevant.push_back(relevant.at(id));
  if (set.queries.ids.empty() || set.documents.ids.empty())
    throw InputError("retrieval",
                     "{}: none of the queries of qrels/{}.tsv is in queries.jsonl, or there is no document",
                     folder.string(), split);
  if (relevant.size() > set.queries.ids.size())
    log::warning("{}: {} queries of qrels/{}.tsv are not in queries.jsonl and are left out", folder.string(),
                 relevant.size() - set.queries.ids.size(), split);
  return set;
}

OrderedJson retrieval_metrics(const std::vector<RankedQuery>& queries) {
  struct Named {
    const char* name;
    double QueryScores::*score;
    std::vector<size_t> depths;
  };
  static const std::vector<Named> kMetrics{{"accuracy", &QueryScores::accuracy, {1, 3, 5, 10}},
                                           {"precision", &QueryScores::precision, {1, 3, 5, 10}},
                                           {"recall", &QueryScores::recall, {1, 3, 5, 10, 100}},
                                           {"ndcg", &QueryScores::ndcg, {10}},
                                           {"mrr", &QueryScores::reciprocal, {10}},
                                           {"map", &QueryScores::average, {100}}};
  OrderedJson found = OrderedJson::object();
  for (const Named& metric : kMetrics)
    for (const size_t k : metric.depths) {
      double sum = 0;
      for (const RankedQuery& query : queries) sum += score_query(query, k).*metric.score;
      found[fmt::format("{}@{}", metric.name, k)] = sum / static_cast<double>(queries.size());
    }
  return found;
}

OrderedJson evaluate_retrieval(const fs::path& model, const RetrievalSet& set, EmbedderOptions options) {
  options.role = TextRole::query;
  const InterruptGuard guard;
  at::Tensor queries;
  Similarity similarity{};
  {
    const Embedder embedder(model, options);
    queries = all_vectors(embedder, set.queries.texts, "evaluate");
    similarity = parse_similarity(embedder.encoder().modules().similarity);
  }
  options.role = TextRole::document;
  const Embedder embedder(model, options);
  const std::vector<std::string>& ids = set.documents.ids;
  NearestRows nearest(queries, kRankedDocuments, similarity, [&](int64_t a, int64_t b) {
    return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)];
  });
  for_each_block(embedder, set.documents.texts, "evaluate",
                 [&](const at::Tensor& block) { nearest.add(block); });
  std::vector<RankedQuery> ranked;
  for (const std::vector<Neighbour>& row : nearest.found()) {
    const std::set<std::string>& relevant = set.relevant[ranked.size()];
    RankedQuery& query = ranked.emplace_back();
    query.relevant = std::ssize(relevant);
    for (const Neighbour& one : row)
      query.hits.push_back(relevant.contains(ids[static_cast<size_t>(one.row)]));
  }
  OrderedJson found = retrieval_metrics(ranked);
  found["queries"] = set.queries.ids.size();
  found["documents"] = ids.size();
  found["similarity"] = similarity_names()[static_cast<size_t>(similarity)];
  return found;
}

ScoredPairs read_scored_pairs(const fs::path& file, FileOptions files) {
  if (files.text.empty()) files.text = {"text_a", "text_b"};
  const auto task = find_task("numbers", std::move(files));
  if (task->texts() != 2)
    throw InputError("usage", "similarity is that of two texts; give two columns with --text-column");
  const auto rows = task->open_rows(file, {.labelled = true});
  ScoredPairs pairs;
  for (size_t piece = 0; piece < rows->pieces(); ++piece)
    rows->read(piece, [&](const data::SourceRow& row) {
      double score = 0;
      const auto [end, error] = std::from_chars(row.label.data(), row.label.data() + row.label.size(), score);
      if (error != std::errc() || end != row.label.data() + row.label.size() || !std::isfinite(score))
        throw data::BadRow(fmt::format("expected a finite number as score, found \"{}\"", row.label));
      pairs.first.emplace_back(row.columns[0]);
      pairs.second.emplace_back(row.columns[1]);
      pairs.scores.push_back(score);
    });
  if (pairs.scores.size() < 2)
    throw InputError("similarity", "{}: expected at least 2 pairs with a score, found {}", file.string(),
                     pairs.scores.size());
  return pairs;
}

OrderedJson evaluate_similarity(const fs::path& model, const ScoredPairs& pairs,
                                const EmbedderOptions& options) {
  const InterruptGuard guard;
  const Embedder embedder(model, options);
  const at::Tensor first = model::normalise_rows(all_vectors(embedder, pairs.first, "evaluate")),
                   second = model::normalise_rows(all_vectors(embedder, pairs.second, "evaluate"));
  const at::Tensor cosines = (first * second).sum(1).to(at::kDouble).contiguous();
  const std::span<const double> found(cosines.const_data_ptr<double>(), static_cast<size_t>(cosines.numel()));
  return {{"spearman", objective::spearmanr(found, pairs.scores)},
          {"pearson", objective::pearson(found, pairs.scores)},
          {"pairs", pairs.scores.size()}};
}

}  // namespace funicular::task
