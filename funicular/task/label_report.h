#pragma once
// Messages about the labels of a file's rows before they are learnt.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/token_store.h"

namespace funicular::task {

struct FileRows;

/// Numbers that are classes are grades of a scale, and a scale has no more of them.
inline constexpr size_t kMostGrades = 20;

/// The first ten names, in quotes where their end could not be seen.
std::string show_classes(const std::vector<std::string>& classes);

/// Rows of each class, by its number; for tags words. A row with shares is one of the class with the greatest share, and
/// has the labels whose own share is above a half.
std::vector<int64_t> rows_of_classes(const data::TokenStore& store);
/// The sum of each class's shares; of rows with one class rows_of_classes().
std::vector<double> shares_of_classes(const data::TokenStore& store);

/// Rows / (classes * rows of the class), as scikit-learn has it; for tags words, for shares their sums. Weights of rows do
/// not count. Throws InputError for a class whose shares are all 0.
std::vector<double> balanced_weights(const data::TokenStore& store, const fs::path& file);
/// Rows that know each label of several: with shares of labels the rows that have a share of it, otherwise all rows.
std::vector<int64_t> known_rows_of_labels(const data::TokenStore& store);
/// Throws InputError for a label of which no row has a share: nothing could be learnt about it.
void require_known_labels(const FileRows& rows);
/// Tells how many rows know each label, if some do not.
void report_known_labels(const data::TokenStore& store);

/// Tells the classes with their rows, the smallest ones too, and warns of names that look alike and of ids that are
/// no classes.
void report_classes(const data::TokenStore& store, const fs::path& file);

/// Warns if another separator than `separator` seems to stand between the labels of rows, or if the labels are
/// lists that were written as text. The store holds sets of labels.
void report_separator(const data::TokenStore& store, const std::string& separator, const fs::path& file);

/// Throws InputError if the rows have fewer than `least` classes.
void require_classes(const FileRows& rows, size_t least);

/// Throws InputError if the classes are many different numbers with a fraction: these are measured and not chosen.
void refuse_measurements(const FileRows& rows);
/// Warns if the classes are a few such numbers.
void warn_of_measurements(const FileRows& rows);

}  // namespace funicular::task
