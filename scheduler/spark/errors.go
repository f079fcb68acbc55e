package spark

import "errors"

// What this package refuses, one sentence each.
var (
	// errNotRunning states that a job has no run here.
	errNotRunning = errors.New("no run of this job is in progress on Spark")
	// errRunning states that a job has a run already.
	errRunning = errors.New("a run of this job is already in progress on Spark")
	// ErrNoRun states that a folder holds no trace of a run.
	ErrNoRun = errors.New("no run was started here")
	// errFloor states that a drop ratio would leave less of the input than the job's floor.
	errFloor = errors.New("drop ratio exceeds the job's floor")
	// errTheta states that a number is no drop ratio.
	errTheta = errors.New("drop ratio must be from 0 to 1")
	// errClosed states that the engine has ended.
	errClosed = errors.New("engine spark stopped")

	// errToken states that a hook did not show the token of its run.
	errToken = errors.New("token of another run")
	// errStranger states that another driver answers at the port of a run's.
	errStranger = errors.New("another driver answered")
	// errMaster states that a master's page is not understood, or not that of the active one.
	errMaster = errors.New("invalid answer of Spark's Master")
	// errShare states that a share could not be carried out as a whole.
	errShare = errors.New("some shares were not applied")
	// errOldRun states that a hook speaks for a run that is over.
	errOldRun = errors.New("another run of the job is in progress")
)
