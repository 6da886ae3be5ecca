#pragma once
// Hard-negative mining: finds texts that an embedder ranks near a query but that are none of its positives. The rules
// are sentence-transformers' (util.mine_hard_negatives).

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/task/embed.h"
#include "funicular/task/nearest.h"
#include "funicular/task/task.h"

namespace funicular::task {

enum class NegativeSampling {
  top,    ///< the nearest candidates
  random  ///< random candidates, keyed by the seed and the texts
};
/// In the order of NegativeSampling.
const std::vector<std::string>& negative_sampling_names();

enum class MinedForm {
  triplet,        ///< a row per positive and negative
  tuple,          ///< a row per positive, with all negatives; rows with too few negatives are left out
  labelled_pair,  ///< a row per text, with the label 1 or 0
  labelled_list   ///< a row per positive: a list of texts and a list of labels
};
/// sentence-transformers' names, in the order of MinedForm.
const std::vector<std::string>& mined_form_names();

struct NegativeRules {
  int64_t negatives = 3;                  ///< per query
  int64_t range_min = 0;                  ///< number of best candidates to skip
  std::optional<int64_t> range_max = {};  ///< number of candidates to read; none: as many as the rules need
  std::optional<double> max_score = {}, min_score = {};
  /// Drops a candidate if its score is above the positive's score minus this. With several positives, the lowest
  /// score counts.
  std::optional<double> absolute_margin = {};
  /// Drops a candidate if its score is above the positive's score minus this share of it.
  std::optional<double> relative_margin = {};
  NegativeSampling sampling = NegativeSampling::top;
  uint64_t seed = 42;

  /// Throws InputError for numbers that contradict each other.
  void check(int64_t most_positives, bool rescored) const;
  /// Returns range_max, or its default. `most_positives`: the largest number of rows of a query.
  int64_t candidates(int64_t most_positives, bool rescored) const;
};

/// Pairs of a query and a text that answers it, and the texts among which negatives are searched. Each text is stored
/// once.
struct MiningTexts {
  std::string query_name = "anchor", positive_name = "positive";  ///< of the columns
  std::vector<std::string> queries, documents;
  std::vector<std::vector<size_t>> positives;  ///< documents, per query
  int64_t rows = 0;                            ///< pairs that were read
  int64_t most_positives = 0;                  ///< largest number of rows of a query

  /// Adds a pair.
  void add(std::string_view query, std::string_view positive);
  /// Adds a text of a corpus. Add the corpus before any pair.
  void add(std::string_view document);

 private:
  std::map<std::string, size_t, std::less<>> query_places_, document_places_;
  std::set<std::pair<size_t, size_t>> known_pairs_;  ///< (query, document)
  std::vector<int64_t> rows_of_query_;
};

/// Throws InputError naming file and line.
MiningTexts read_mining_texts(const fs::path& pairs, const FileOptions& files,
                              const std::vector<InputOptions>& corpus);

/// The result for a query.
struct MinedQuery {
  std::vector<float> positive_scores;  ///< in the order of MiningTexts::positives
  std::vector<Neighbour> negatives;    ///< best first; `row` is a document
};

/// The number of candidates that each rule has dropped.
using DroppedCandidates = std::map<std::string, int64_t>;

/// Chooses negatives of one query from its candidates, which are the best `count` of all documents. `count`:
/// NegativeRules::candidates().
std::vector<Neighbour> choose_negatives(const NegativeRules& rules, int64_t count,
                                        std::vector<Neighbour> candidates,
                                        const std::vector<size_t>& positives,
                                        const std::vector<float>& positive_scores,
                                        const std::function<uint64_t(int64_t document)>& key,
                                        DroppedCandidates& dropped);

struct MiningOptions {
  fs::path model = {};     ///< folder of the embedder
  fs::path reranker = {};  ///< folder of a reranker that rescores candidates and positives; empty: none
  EmbedderOptions embedder = {};  ///< `role` is set here
  NegativeRules rules = {};
  /// Folder for intermediate results, to resume an interrupted command; see remove_mining_work(). A search with other
  /// rules reuses the vectors, and with the same number of candidates also the scores.
  fs::path work = {};
};

struct MinedNegatives {
  std::vector<MinedQuery> queries;
  DroppedCandidates dropped;
};
/// Throws InputError for a model that does not fit, and Error with ExitCode::interrupted if an interrupt is requested.
MinedNegatives mine_negatives(const MiningTexts& texts, const MiningOptions& options);

/// Removes mine_negatives()' intermediate results from the folder, and the folder if it is empty then.
void remove_mining_work(const fs::path& work);

/// Outputs the rows as JSON lines. `scores`: with the scores of the texts, which replace any labels.
void write_mined(const MiningTexts& texts, const MinedNegatives& mined, MinedForm form, bool scores,
                 int64_t negatives, const std::function<void(const OrderedJson& row)>& write);

}  // namespace funicular::task
