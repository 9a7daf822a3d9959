# SPDX-License-Identifier: Apache-2.0
"""The driver of the benchmark: build, servers, rows, measure, report. Standard library only."""
