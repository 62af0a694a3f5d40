// From text that came in a message to nodes. Text is only ever text: nothing here makes markup of it.

/** Makes an element with a class and children; a string is a text node. */
export function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** The few marks of Markdown that are worth showing: fenced code, `code`, **strong**. All else stays as written. */
export function prose(text) {
  const block = element("div", "text");
  text.split(/^```[^\n]*\n([\s\S]*?)(?:^```[ \t]*$\n?|(?![\s\S]))/m).forEach((part, index) => {
    if (index % 2 === 1) block.append(element("pre", "", part.replace(/\n$/, "")));
    // Code stands apart from the text around it: the empty lines there would stand apart twice.
    else block.append(...spans(part.replace(index > 0 ? /^\n+/ : /^(?!)/, "").replace(/\n+$/, "")));
  });
  return block;
}

function spans(text) {
  return text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).filter(Boolean).map((part) => {
    if (/^`[^`\n]+`$/.test(part)) return element("code", "", part.slice(1, -1));
    if (/^\*\*[^*\n]+\*\*$/.test(part)) return element("strong", "", part.slice(2, -2));
    return document.createTextNode(part);
  });
}

/** Text as it was written. */
export function plain(text) {
  return element("div", "text", text);
}

/** An image that came within a message; a word for it where it is of no kind that can only be looked at. */
export function image(url) {
  if (!/^data:image\/(png|jpeg|gif|webp);base64,/.test(url)) return element("p", "aside", "[image]");
  const shown = element("img", "image");
  shown.alt = "Image in the message";
  shown.src = url;
  return shown;
}

/** A duration as people read it. */
export function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
}

/** A count as people read it. */
export function count(number) {
  if (number < 1000) return String(number);
  if (number < 1e6) return `${(number / 1e3).toFixed(number < 1e4 ? 1 : 0)}k`;
  return `${(number / 1e6).toFixed(1)}M`;
}
