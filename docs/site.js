// The search reads its index with a request, which browsers refuse for pages that are opened from disk.
if (location.protocol === "file:") {
  for (const button of document.querySelectorAll(".md-search__button")) {
    button.disabled = true;
    button.textContent = "Search needs a server";
    button.title = "python -m http.server --directory site";
  }
  for (const label of document.querySelectorAll('label[for="__search"]')) {
    label.hidden = true;
  }
}
