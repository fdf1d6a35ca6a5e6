#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 OR MIT
# sum.sh FILE: adds up its lines `NAME: N passed, N failed, N skipped…`; prints three numbers.
awk '{
    for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed/) passed += $(i - 1)
        if ($i ~ /^failed/) failed += $(i - 1)
        if ($i ~ /^skipped/) skipped += $(i - 1)
    }
}
END { print passed + 0, failed + 0, skipped + 0 }' "$1"
