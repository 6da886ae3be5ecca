#pragma once
// Evaluates an embedder: retrieval with BEIR's files, and the similarity of pairs of texts.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/task/embed.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// Queries, documents, and the relevant documents of each query.
struct RetrievalSet {
  struct Texts {
    std::vector<std::string> ids, texts;
  };
  Texts documents, queries;                     ///< only queries that have a relevant document
  std::vector<std::set<std::string>> relevant;  ///< ids of documents per query; the corpus may lack some
};

/// Reads corpus.jsonl and queries.jsonl: objects with _id and text; documents may have a title. Reads
/// qrels/SPLIT.tsv: a header, then query-id, corpus-id and score; a score above 0 is relevant. Throws InputError that
/// names file and line.
RetrievalSet read_retrieval_set(const fs::path& folder, const std::string& split = "test");

/// The result for a query: ids, best first, and the number of relevant documents.
struct RankedQuery {
  std::vector<bool> hits;  ///< whether the document at each rank is relevant
  int64_t relevant = 0;
};

/// {"accuracy@1", …, "precision@k", "recall@k", "ndcg@10", "mrr@10", "map@100"}, means over the queries. A gain is 0
/// or 1. nDCG divides by the best order of all relevant documents, MAP by the smaller of k and their number.
OrderedJson retrieval_metrics(const std::vector<RankedQuery>& queries);

/// Documents to keep per query, as many as the metrics read.
inline constexpr int64_t kRankedDocuments = 100;

/// Embeds queries and documents with the model's prompts for them, and scores the search. The vectors of the
/// documents are not kept. Documents with equal scores are ordered by id.
OrderedJson evaluate_retrieval(const fs::path& model, const RetrievalSet& set, EmbedderOptions options);

struct ScoredPairs {
  std::vector<std::string> first, second;
  std::vector<double> scores;
};
/// Reads a table. `files`: columns; unless named, text_a, text_b and label.
ScoredPairs read_scored_pairs(const fs::path& file, FileOptions files);

/// {"spearman": of the cosines with the scores, "pearson", "pairs"}.
OrderedJson evaluate_similarity(const fs::path& model, const ScoredPairs& pairs,
                                const EmbedderOptions& options);

}  // namespace funicular::task
