// Package profiles is the folder of quality profiles that a scheduler knows, and what
// follows from it: the least part of its map tasks that a job must do to be as
// accurate as its owner asks.
//
// The one idea: one file for each profile, NAME.json, as `scheduler profile --out`
// writes it; whoever can write into the folder says what is known of a job.
//
// Guarantees:
//   - a file is read again when it has changed; an error in it is logged once,
//     in the log, and stops nothing;
//   - what cannot be answered has the strictest answer, all tasks, with the reason in
//     words: no folder, no such profile, a broken one, an accuracy that is no
//     fraction or that no part of the tasks keeps;
//   - the worst run of a profile counts, not the mean.
package profiles
