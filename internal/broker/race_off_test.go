// SPDX-License-Identifier: Apache-2.0

//go:build !race

package broker_test

const raceDetector = false
