// The lines that differ between two texts, by their longest common subsequence.

const LARGEST = 1500; // lines; larger texts are shown as removed and added

/** [["same" | "removed" | "added", line]] from `before` to `after`. */
export function lineDiff(before, after) {
  const [old, now] = [lines(before), lines(after)];
  if (old.length > LARGEST || now.length > LARGEST) return [...old.map((line) => ["removed", line]), ...now.map((line) => ["added", line])];
  const common = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) common[i][j] = old[i] === now[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) { found.push(["same", old[i]]); i += 1; j += 1; }
    else if (i < old.length && (j >= now.length || common[i + 1][j] >= common[i][j + 1])) { found.push(["removed", old[i]]); i += 1; }
    else { found.push(["added", now[j]]); j += 1; }
  }
  return found;
}

const lines = (text) => (text === "" ? [] : text.split("\n"));
