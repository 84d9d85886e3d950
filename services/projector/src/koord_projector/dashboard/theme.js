// Runs before the page is painted, so that a chosen theme does not flash the other one first.
// "light" or "dark" when the reader chose one; otherwise the system's preference decides (styles.css).
(() => {
  const chosen = localStorage.getItem("koord-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
