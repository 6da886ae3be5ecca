#include "funicular/task/mining.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/made_record.h"
#include "funicular/model/sentence_encoder.h"
#include "funicular/task/folder_predictor.h"
#include "funicular/task/kept_vectors.h"
#include "funicular/task/registry.h"

namespace funicular::task {

const std::vector<std::string>& negative_sampling_names() {
  static const std::vector<std::string> names{"top", "random"};
  return names;
}

const std::vector<std::string>& mined_form_names() {
  static const std::vector<std::string> names{"triplet", "n-tuple", "labeled-pair", "labeled-list"};
  return names;
}

// ---- rules

int64_t NegativeRules::candidates(int64_t most_positives, bool rescored) const {
  constexpr int64_t kPerNegative = 10;
  if (range_max) return *range_max;
  const bool drops = absolute_margin || relative_margin || max_score || (rescored && min_score);
  return range_min + negatives * (drops ? kPerNegative : 1) + most_positives;
}

void NegativeRules::check(int64_t most_positives, bool rescored) const {
  const int64_t last = candidates(most_positives, rescored);
  if (negatives > last - range_min)
    throw InputError(
        "usage",
        "--negatives {}: only {} candidates remain between --range-min {} and --range-max {}; choose a "
        "smaller --range-min or a larger --range-max",
        negatives, std::max<int64_t>(last - range_min, 0), range_min, last);
  if (min_score && max_score && *min_score > *max_score)
    throw InputError("usage", "--min-score {} is above --max-score {}; no candidate has such a score",
                     *min_score, *max_score);
}

namespace {

/// Drops candidates whose score violates the rule, and counts them.
void drop_candidates(std::vector<Neighbour>& candidates, const char* rule, DroppedCandidates& dropped,
                     const std::function<bool(float score)>& is_dropped) {
  dropped[rule] += std::erase_if(candidates, [&](const Neighbour& one) { return is_dropped(one.score); });
}

void apply_rules(const NegativeRules& rules, std::vector<Neighbour>& candidates, float positive,
                 DroppedCandidates& dropped) {
  if (rules.absolute_margin)
    drop_candidates(candidates, "absolute_margin", dropped, [&](float score) {
      return score + static_cast<float>(*rules.absolute_margin) > positive;
    });
  if (rules.relative_margin)
    drop_candidates(candidates, "relative_margin", dropped, [&](float score) {
      return score > positive - std::abs(positive) * static_cast<float>(*rules.relative_margin);
    });
  if (rules.max_score)
    drop_candidates(candidates, "max_score", dropped,
                    [&](float score) { return score > static_cast<float>(*rules.max_score); });
  if (rules.min_score)
    drop_candidates(candidates, "min_score", dropped,
                    [&](float score) { return score < static_cast<float>(*rules.min_score); });
}

}  // namespace

std::vector<Neighbour> choose_negatives(const NegativeRules& rules, int64_t count,
                                        std::vector<Neighbour> candidates,
                                        const std::vector<size_t>& positives,
                                        const std::vector<float>& positive_scores,
                                        const std::function<uint64_t(int64_t document)>& key,
                                        DroppedCandidates& dropped) {
  const std::set<size_t> own(positives.begin(), positives.end());
  std::erase_if(candidates, [&](const Neighbour& one) { return own.contains(static_cast<size_t>(one.row)); });
  apply_rules(rules, candidates, *std::min_element(positive_scores.begin(), positive_scores.end()), dropped);
  const auto nearer = [](const Neighbour& a, const Neighbour& b) { return a.score > b.score; };
  std::stable_sort(candidates.begin(), candidates.end(), nearer);
  const auto left = [&](int64_t most) {
    return candidates.begin() + std::min<ptrdiff_t>(static_cast<ptrdiff_t>(most), std::ssize(candidates));
  };
  candidates.erase(left(count), candidates.end());
  candidates.erase(candidates.begin(), left(rules.range_min));
  if (rules.sampling == NegativeSampling::random)
    std::sort(candidates.begin(), candidates.end(),
              [&](const Neighbour& a, const Neighbour& b) { return key(a.row) < key(b.row); });
  candidates.erase(left(rules.negatives), candidates.end());
  std::stable_sort(candidates.begin(), candidates.end(), nearer);
  return candidates;
}

// ---- texts

void MiningTexts::add(std::string_view document) {
  const auto [place, is_new] = document_places_.try_emplace(std::string(document), documents.size());
  if (is_new) documents.push_back(place->first);
}

void MiningTexts::add(std::string_view query, std::string_view positive) {
  add(positive);
  const auto [place, is_new] = query_places_.try_emplace(std::string(query), queries.size());
  if (is_new) {
    queries.push_back(place->first);
    positives.emplace_back();
    rows_of_query_.push_back(0);
  }
  const size_t document = document_places_.find(positive)->second;
  if (known_pairs_.emplace(place->second, document).second) positives[place->second].push_back(document);
  most_positives = std::max(most_positives, ++rows_of_query_[place->second]);
  ++rows;
}

MiningTexts read_mining_texts(const fs::path& pairs, const FileOptions& files,
                              const std::vector<InputOptions>& corpus) {
  MiningTexts texts;
  for (const InputOptions& one : corpus) {
    const std::unique_ptr<RowInput> rows = open_texts(one);
    while (const std::optional<InputRow> row = rows->next()) texts.add(row->texts.front());
  }
  const auto task = find_task("pairs", files);
  const data::TextFileSourceOptions columns = task->columns();
  const auto name_of = [&](size_t column, std::string& name) {
    if (const auto* given = std::get_if<std::string>(&columns.text_columns.at(column))) name = *given;
  };
  name_of(0, texts.query_name);
  name_of(1, texts.positive_name);
  const auto source = task->open_rows(pairs, {});
  for (size_t piece = 0; piece < source->pieces(); ++piece)
    source->read(piece, [&](const data::SourceRow& row) { texts.add(row.columns[0], row.columns[1]); });
  if (texts.rows == 0)
    throw InputError("mine", "{}: no rows; expected pairs of a query and a text that answers it",
                     pairs.string());
  return texts;
}

// ---- the search

namespace {

model::Pretrained open_reranker(const fs::path& folder) {
  model::Pretrained opened(folder, model::Pretrained::Expect::folder, "--reranker");
  const TaskType& type = type_of(opened.config());
  if (type.name != "reranker")
    throw InputError("usage",
                     "--reranker {}: the model gives {}; expected a reranker, as finetune --task reranker or "
                     "sentence-transformers' CrossEncoder makes it",
                     folder.string(), type.gives);
  return opened;
}

constexpr const char* kKeptQueries = "queries.npy";
constexpr const char* kKeptDocuments = "documents.npy";
constexpr const char* kKeptScores = "scores.npy";
constexpr const char* kKeptWork = "the work so far is kept; run the same command again to resume";
constexpr int64_t kDocumentsAtOnce = 4096;

/// Scores of a query with documents by a reranker.
class Rescoring {
 public:
  Rescoring(const fs::path& folder, const EmbedderOptions& embedder)
      : predictor_(open_reranker(folder), nullptr,
                   {.precision = embedder.precision == "fp64" ? "fp32" : embedder.precision,
                    .batch_tokens = embedder.batch_tokens,
                    .device = embedder.device}) {}

  std::vector<float> scores(const std::string& query,
                            const std::vector<const std::string*>& documents) const {
    if (documents.empty()) return {};
    std::vector<InputRow> rows(1);
    rows.front().texts = {query};
    for (const std::string* document : documents) rows.front().texts.push_back(*document);
    return predictor_.predictor().answer(std::move(rows)).front().scores;
  }

 private:
  FolderPredictor predictor_;
};

/// The similarity of vectors of length 1, row by row.
at::Tensor pair_similarities(const at::Tensor& a, const at::Tensor& b, Similarity similarity) {
  if (similarity == Similarity::euclidean) return -(a - b).norm(2, {-1});
  if (similarity == Similarity::manhattan) return -(a - b).abs().sum(-1);
  return (a * b).sum(-1);
}

/// A hash of elements and their boundaries.
template <class Element>
std::string hash_of_elements(const std::vector<Element>& elements) {
  StreamHash hash;
  for (const auto& element : elements) {
    const uint64_t size = element.size();
    hash.update(&size, sizeof size);
    hash.update(element.data(), size * sizeof(element[0]));
  }
  return hash_text(hash.digest());
}

/// Everything except the texts that determines the vectors.
Json identity_of_embedder(const MiningOptions& options) {
  const EmbedderOptions& own = options.embedder;
  Json identity{{"version", 2},
                {"model", hash_of_output(options.model)},
                {"poolings", own.poolings},
                {"prompt_name", own.prompt_name},
                {"normalise", own.normalise},
                {"precision", own.precision}};
  if (own.prompt) identity["prompt"] = *own.prompt;
  if (own.truncate_dim) identity["truncate_dim"] = *own.truncate_dim;
  if (own.max_length) identity["max_length"] = *own.max_length;
  return identity;
}

/// The nearest documents of each query, and the scores of its positives.
class Search {
 public:
  Search(const MiningTexts& texts, const MiningOptions& options, int64_t neighbours);
  /// Everything that determines the vectors of the queries and of the documents.
  const Json& identity() const { return identity_; }
  const std::vector<std::vector<Neighbour>>& nearest() const { return nearest_; }
  std::vector<float> positive_scores(size_t query) const;

 private:
  const MiningTexts& texts_;
  Json identity_;
  Similarity similarity_{};
  at::Tensor queries_, positives_;           ///< vectors; of the positives only
  std::map<size_t, int64_t> positive_rows_;  ///< of `positives_`, by document
  std::vector<std::vector<Neighbour>> nearest_;
};

Search::Search(const MiningTexts& texts, const MiningOptions& options, int64_t neighbours) : texts_(texts) {
  EmbedderOptions embedding = options.embedder;
  embedding.role = TextRole::query;
  {
    const Embedder embedder(options.model, embedding);
    identity_["queries"] = identity_["documents"] = identity_of_embedder(options);
    identity_["queries"]["texts"] = hash_of_elements(texts.queries);
    identity_["documents"]["texts"] = hash_of_elements(texts.documents);
    const format::NpyFile queries =
        kept_vectors(options.work / kKeptQueries, identity_["queries"], embedder, texts.queries, "mine");
    queries_ = model::normalise_rows(rows_of(queries, 0, queries.rows()));
    similarity_ = parse_similarity(embedder.encoder().modules().similarity);
  }
  embedding.role = TextRole::document;
  const Embedder embedder(options.model, embedding);
  for (const auto& own : texts.positives)
    for (const size_t document : own) positive_rows_.emplace(document, 0);
  int64_t count = 0;
  for (auto& [document, row] : positive_rows_) row = count++;
  positives_ = at::empty({count, queries_.size(1)}, at::kFloat);
  NearestRows nearest(queries_, neighbours, similarity_);
  const format::NpyFile documents =
      kept_vectors(options.work / kKeptDocuments, identity_["documents"], embedder, texts.documents, "mine");
  for (int64_t begin = 0; begin < documents.rows(); begin += kDocumentsAtOnce) {
    stop_if_interrupted("mine", kKeptWork);
    const int64_t end = std::min(begin + kDocumentsAtOnce, documents.rows());
    const at::Tensor unit = model::normalise_rows(rows_of(documents, begin, end));
    for (auto own = positive_rows_.lower_bound(static_cast<size_t>(begin));
         own != positive_rows_.end() && own->first < static_cast<size_t>(end); ++own)
      positives_.select(0, own->second).copy_(unit.select(0, static_cast<int64_t>(own->first) - begin));
    nearest.add(unit);
  }
  nearest_ = nearest.found();
}

std::vector<float> Search::positive_scores(size_t query) const {
  std::vector<int64_t> rows;
  for (const size_t document : texts_.positives[query]) rows.push_back(positive_rows_.at(document));
  const at::Tensor own = positives_.index_select(0, at::tensor(rows, at::kLong));
  const at::Tensor scores =
      pair_similarities(queries_.select(0, static_cast<int64_t>(query)).unsqueeze(0), own, similarity_)
          .contiguous();
  return {scores.const_data_ptr<float>(), scores.const_data_ptr<float>() + scores.numel()};
}

/// Everything that determines the reranker's scores.
Json identity_of_scores(const Search& search, const MiningTexts& texts, const MiningOptions& options,
                        int64_t neighbours) {
  Json identity = search.identity();
  identity["reranker"] = hash_of_output(options.reranker);
  identity["positives"] = hash_of_elements(texts.positives);
  identity["neighbours"] = neighbours;
  return identity;
}

void rescore(const Rescoring& rescoring, KeptNumbers& kept, const MiningTexts& texts, size_t query,
             std::vector<Neighbour>& candidates, std::vector<float>& positive_scores) {
  std::vector<const std::string*> documents;
  for (const size_t document : texts.positives[query]) documents.push_back(&texts.documents[document]);
  for (const Neighbour& one : candidates) documents.push_back(&texts.documents[static_cast<size_t>(one.row)]);
  const std::vector<float> scores =
      kept.next(documents.size(), [&] { return rescoring.scores(texts.queries[query], documents); });
  const size_t own = texts.positives[query].size();
  positive_scores.assign(scores.begin(), scores.begin() + static_cast<ptrdiff_t>(own));
  for (size_t i = 0; i < candidates.size(); ++i) candidates[i].score = scores[own + i];
}

}  // namespace

MinedNegatives mine_negatives(const MiningTexts& texts, const MiningOptions& options) {
  const NegativeRules& rules = options.rules;
  const bool rescored = !options.reranker.empty();
  rules.check(texts.most_positives, rescored);
  const int64_t count = rules.candidates(texts.most_positives, rescored);
  std::optional<Rescoring> rescoring;  // refuses a folder before the embedder has worked
  if (rescored) rescoring.emplace(options.reranker, options.embedder);
  const int64_t neighbours = count + texts.most_positives;
  const Search search(texts, options, neighbours);
  std::optional<KeptNumbers> kept;
  if (rescored)
    kept.emplace(options.work / kKeptScores, identity_of_scores(search, texts, options, neighbours));
  MinedNegatives mined;
  for (size_t query = 0; query < texts.queries.size(); ++query) {
    stop_if_interrupted("mine", kKeptWork);
    MinedQuery& found = mined.queries.emplace_back();
    found.positive_scores = search.positive_scores(query);
    std::vector<Neighbour> candidates = search.nearest()[query];
    if (rescoring) rescore(*rescoring, *kept, texts, query, candidates, found.positive_scores);
    const auto key = [&](int64_t document) {
      return hash_bytes(fmt::format("{} {}\n{}", rules.seed, texts.queries[query],
                                    texts.documents[static_cast<size_t>(document)]));
    };
    found.negatives = choose_negatives(rules, count, std::move(candidates), texts.positives[query],
                                       found.positive_scores, key, mined.dropped);
  }
  return mined;
}

void remove_mining_work(const fs::path& work) {
  for (const char* name : {kKeptQueries, kKeptDocuments, kKeptScores}) {
    fs::remove(work / name);
    fs::remove(made_record_of(work / name));
    fs::remove_all(VectorOutput::folder_of(work / name));
  }
  std::error_code none;
  fs::remove(work, none);
}

// ---- rows

namespace {

/// A number of six digits.
double shortened(float score) {
  return std::round(double{score} * 1e6) / 1e6;
}

/// The rows of one query.
class MinedRows {
 public:
  MinedRows(const MiningTexts& texts, size_t query, const MinedQuery& found)
      : texts_(texts), query_(query), found_(found) {}

  OrderedJson begin() const {
    OrderedJson row;
    row[texts_.query_name] = texts_.queries[query_];
    return row;
  }
  const std::string& positive(size_t number) const {
    return texts_.documents[texts_.positives[query_][number]];
  }
  const std::string& negative(size_t number) const {
    return texts_.documents[static_cast<size_t>(found_.negatives[number].row)];
  }
  size_t positives() const { return texts_.positives[query_].size(); }
  size_t negatives() const { return found_.negatives.size(); }
  double positive_score(size_t number) const { return shortened(found_.positive_scores[number]); }
  double negative_score(size_t number) const { return shortened(found_.negatives[number].score); }
  /// The scores of a positive and of the first negatives.
  OrderedJson scores(size_t number) const {
    OrderedJson all = {positive_score(number)};
    for (size_t i = 0; i < negatives(); ++i) all.push_back(negative_score(i));
    return all;
  }
  const std::string& positive_name() const { return texts_.positive_name; }

 private:
  const MiningTexts& texts_;
  size_t query_;
  const MinedQuery& found_;
};

using WriteRow = std::function<void(const OrderedJson& row)>;

void write_triplets(const MinedRows& rows, bool scores, const WriteRow& write) {
  for (size_t p = 0; p < rows.positives(); ++p)
    for (size_t n = 0; n < rows.negatives(); ++n) {
      OrderedJson row = rows.begin();
      row[rows.positive_name()] = rows.positive(p);
      row["negative"] = rows.negative(n);
      if (scores) row["scores"] = {rows.positive_score(p), rows.negative_score(n)};
      write(row);
    }
}

void write_tuples(const MinedRows& rows, bool scores, size_t negatives, const WriteRow& write) {
  if (rows.negatives() < negatives) return;
  for (size_t p = 0; p < rows.positives(); ++p) {
    OrderedJson row = rows.begin();
    row[rows.positive_name()] = rows.positive(p);
    for (size_t n = 0; n < negatives; ++n) row[fmt::format("negative_{}", n + 1)] = rows.negative(n);
    if (scores) row["scores"] = rows.scores(p);
    write(row);
  }
}

void write_pairs(const MinedRows& rows, bool scores, const WriteRow& write) {
  const auto add = [&](const std::string& text, int label, double score) {
    OrderedJson row = rows.begin();
    row[rows.positive_name()] = text;
    if (scores)
      row["score"] = score;
    else
      row["label"] = label;
    write(row);
  };
  for (size_t p = 0; p < rows.positives(); ++p) add(rows.positive(p), 1, rows.positive_score(p));
  for (size_t n = 0; n < rows.negatives(); ++n) add(rows.negative(n), 0, rows.negative_score(n));
}

void write_lists(const MinedRows& rows, bool scores, const WriteRow& write) {
  if (rows.negatives() == 0) return;
  for (size_t p = 0; p < rows.positives(); ++p) {
    OrderedJson row = rows.begin(), labels = {1};
    OrderedJson& listed = row[rows.positive_name()] = OrderedJson::array({rows.positive(p)});
    for (size_t n = 0; n < rows.negatives(); ++n) {
      listed.push_back(rows.negative(n));
      labels.push_back(0);
    }
    row[scores ? "scores" : "labels"] = scores ? rows.scores(p) : labels;
    write(row);
  }
}

}  // namespace

void write_mined(const MiningTexts& texts, const MinedNegatives& mined, MinedForm form, bool scores,
                 int64_t negatives, const std::function<void(const OrderedJson& row)>& write) {
  for (size_t query = 0; query < mined.queries.size(); ++query) {
    const MinedRows rows(texts, query, mined.queries[query]);
    switch (form) {
      case MinedForm::triplet:
        write_triplets(rows, scores, write);
        break;
      case MinedForm::tuple:
        write_tuples(rows, scores, static_cast<size_t>(negatives), write);
        break;
      case MinedForm::labelled_pair:
        write_pairs(rows, scores, write);
        break;
      case MinedForm::labelled_list:
        write_lists(rows, scores, write);
        break;
    }
  }
}

}  // namespace funicular::task
