#pragma once
// Hard negatives: texts that an embedder takes for near to a query and that are none of its positives. The rules are
// sentence-transformers' (util.mine_hard_negatives).

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
  random  ///< any of the candidates, chosen by the seed and the texts
};
/// In the order of NegativeSampling.
const std::vector<std::string>& negative_sampling_names();

enum class MinedForm {
  triplet,        ///< a row per positive and negative
  tuple,          ///< a row per positive, with all negatives; rows with fewer than asked for are left out
  labelled_pair,  ///< a row per text, with the label 1 or 0
  labelled_list   ///< a row per positive: a list of texts and a list of labels
};
/// In the order of MinedForm, as sentence-transformers calls them.
const std::vector<std::string>& mined_form_names();

struct NegativeRules {
  int64_t negatives = 3;                  ///< per query
  int64_t range_min = 0;                  ///< so many of the best candidates are passed over
  std::optional<int64_t> range_max = {};  ///< candidates that are read; none: as many as the rules need
  std::optional<double> max_score = {}, min_score = {};
  /// A candidate is dropped if its score is above the positive's less this. If there are several positives,
  /// the lowest score counts.
  std::optional<double> absolute_margin = {};
  /// A candidate is dropped if its score is above the positive's less this share of it.
  std::optional<double> relative_margin = {};
  NegativeSampling sampling = NegativeSampling::top;
  uint64_t seed = 42;

  /// Throws InputError for numbers that contradict each other.
  void check(int64_t most_positives, bool rescored) const;
  /// range_max, or its default. `most_positives`: rows of the query that has most.
  int64_t candidates(int64_t most_positives, bool rescored) const;
};

/// Pairs of a query and a text that answers it, and the texts among which negatives are looked for. Each text is there
/// once.
struct MiningTexts {
  std::string query_name = "anchor", positive_name = "positive";  ///< of the columns
  std::vector<std::string> queries, documents;
  std::vector<std::vector<size_t>> positives;  ///< of each query: documents
  int64_t rows = 0;                            ///< pairs that were read
  int64_t most_positives = 0;                  ///< rows of the query that has most

  /// Adds a pair.
  void add(std::string_view query, std::string_view positive);
  /// Adds a text of a corpus. A corpus is added before all pairs.
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
  std::vector<Neighbour> negatives;    ///< the best first; `row` is a document
};

/// How many candidates each rule has dropped.
using DroppedCandidates = std::map<std::string, int64_t>;

/// Chooses negatives of one query from its candidates, the best `count` of all documents.
/// `count`: NegativeRules::candidates().
std::vector<Neighbour> choose_negatives(const NegativeRules& rules, int64_t count,
                                        std::vector<Neighbour> candidates,
                                        const std::vector<size_t>& positives,
                                        const std::vector<float>& positive_scores,
                                        const std::function<uint64_t(int64_t document)>& key,
                                        DroppedCandidates& dropped);

struct MiningOptions {
  fs::path model = {};     ///< folder of the embedder
  fs::path reranker = {};  ///< folder of a reranker that scores candidates and positives again; empty: none
  EmbedderOptions embedder = {};  ///< `role` is set here
  NegativeRules rules = {};
  /// Folder for what an interrupted command has computed; see remove_mining_work(). A search with other rules uses the
  /// vectors, and one with as many candidates the scores, too.
  fs::path work = {};
};

struct MinedNegatives {
  std::vector<MinedQuery> queries;
  DroppedCandidates dropped;
};
/// Throws InputError for a model that does not fit, and Error with ExitCode::interrupted if an interrupt is requested.
MinedNegatives mine_negatives(const MiningTexts& texts, const MiningOptions& options);

/// Removes what mine_negatives() keeps in the folder, and the folder if nothing else is in it.
void remove_mining_work(const fs::path& work);

/// Gives the rows as JSON lines. `scores`: with the scores of the texts, in place of labels where there are such.
void write_mined(const MiningTexts& texts, const MinedNegatives& mined, MinedForm form, bool scores,
                 int64_t negatives, const std::function<void(const OrderedJson& row)>& write);

}  // namespace funicular::task
