package spark

import "errors"

// What this package refuses, one sentence each.
var (
	// errNotRunning says that a job has no run here.
	errNotRunning = errors.New("no run of this job is under way on Spark")
	// errRunning says that a job has a run already.
	errRunning = errors.New("a run of this job is under way on Spark already")
	// ErrNoRun says that a folder holds no trace of a run.
	ErrNoRun = errors.New("no run was ever started here")
	// errFloor says that a drop ratio would leave less of the input than the job's floor.
	errFloor = errors.New("the job's floor forbids this drop ratio")
	// errTheta says that a number is no drop ratio.
	errTheta = errors.New("a drop ratio is a number from 0 to 1")
	// errClosed says that the engine has ended.
	errClosed = errors.New("the Spark engine has ended")

	// errToken says that a hook did not show the token of its run.
	errToken = errors.New("the token is not that of the run")
	// errStranger says that another driver answers at the port of a run's.
	errStranger = errors.New("another driver answers there")
	// errMaster says that a master's page is not understood, or not that of the active one.
	errMaster = errors.New("the answer of Spark's Master cannot be used")
	// errShare says that a share could not be carried out as a whole.
	errShare = errors.New("some shares are not carried out")
	// errOldRun says that a hook speaks for a run that is over.
	errOldRun = errors.New("another run of the job is under way")
)
