# usage: sort … | awk -v out=FOLDER -v smallest=N -f write_splits.awk COUNTS -
# COUNTS has "section TAB packages"; sections with fewer than N packages are left out of the labelled files.
# Writes FOLDER/text-{train,eval}.txt (documents separated by blank lines: one paragraph a line) from the lines of
# descriptions.awk, and FOLDER/sections-{train,eval,test}.tsv (label TAB text).
BEGIN { FS = "\t" }
NR == FNR { large[$1] = $2 >= smallest; next }
{
  if ($2 != "test") {
    document = $4
    gsub(/\001/, "\n", document)
    print document "\n" > (out "/text-" $2 ".txt")
  }
  if (large[$3]) {
    line = $4
    gsub(/\001/, " ", line)
    print $3 "\t" line > (out "/sections-" $2 ".tsv")
  }
}
