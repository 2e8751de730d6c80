// What is wrong with the page, as a list of sentences; an empty list is a page as it should be.
(() => {
  const wrong = [];
  const say = (what, element) => wrong.push(`${what}: <${element.tagName.toLowerCase()} class="${element.getAttribute("class") || ""}"> ${element.textContent.trim().slice(0, 60)}`);
  const inside = (element, selector) => element.closest(selector) !== null;
  const all = (selector) => [...document.querySelectorAll(selector)];
  const seen = (element) => element.getClientRects().length > 0 && getComputedStyle(element).visibility === "visible";

  // Nothing is cut off, and only boxes that scroll are wider than the screen.
  if (document.documentElement.scrollWidth > innerWidth) wrong.push(`the page is ${document.documentElement.scrollWidth} wide on a screen of ${innerWidth}`);
  for (const element of all("body *")) {
    if (!seen(element) || inside(element, ".hidden, .skip")) continue;
    const box = element.getBoundingClientRect();
    const scrolls = inside(element, ".scroll") && !element.matches(".scroll");
    if (!scrolls && (box.left < -0.5 || box.right > innerWidth + 0.5)) say("outside the screen", element);
    const style = getComputedStyle(element);
    if (!(element instanceof SVGElement) && style.overflowX === "hidden" && element.scrollWidth > element.clientWidth + 1) say("cut off", element);
  }
  for (const region of all(".scroll")) {
    if (region.tabIndex !== 0 || !region.getAttribute("aria-label")) say("scrolls, but not by keyboard, or has no name", region);
  }

  // In a drawing, every text is inside the frame and none covers another.
  for (const svg of all("svg[viewBox]").filter(seen)) {
    const frame = svg.viewBox.baseVal;
    const texts = [...svg.querySelectorAll("text")].map((text) => ({ text, box: text.getBBox() })).filter(({ box }) => box.width > 0);
    for (const { text, box } of texts) {
      if (box.x < frame.x - 0.5 || box.y < frame.y - 2 || box.x + box.width > frame.x + frame.width + 0.5 || box.y + box.height > frame.y + frame.height + 2) say("text outside its drawing", text);
    }
    texts.forEach((one, place) => texts.slice(place + 1).forEach((other) => {
      const across = Math.min(one.box.x + one.box.width, other.box.x + other.box.width) - Math.max(one.box.x, other.box.x);
      const down = Math.min(one.box.y + one.box.height, other.box.y + other.box.height) - Math.max(one.box.y, other.box.y);
      if (across > 0.5 && down > 3) say(`texts over each other, "${other.text.textContent}" and`, one.text);
    }));
  }

  // Headings go down one step at a time from a single h1; names are there for those who cannot see.
  const levels = all("h1, h2, h3, h4, h5, h6").map((heading) => Number(heading.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1 || levels[0] !== 1) wrong.push(`headings start as ${levels.slice(0, 3)}`);
  levels.forEach((level, place) => { if (place && level > levels[place - 1] + 1) wrong.push(`a heading of level ${level} after ${levels[place - 1]}`); });
  if (!document.documentElement.lang || !document.title) wrong.push("the page has no language or no title");
  const ids = all("[id]").map((element) => element.id);
  if (new Set(ids).size !== ids.length) wrong.push(`ids that stand twice: ${ids.filter((id, place) => ids.indexOf(id) !== place)}`);
  const named = (element) => ["aria-labelledby", "aria-describedby"].every((name) => (element.getAttribute(name) || "").split(" ").filter(Boolean).every((id) => document.getElementById(id)?.textContent.trim()));
  for (const svg of all("svg")) {
    const told = svg.getAttribute("role") === "img" && svg.hasAttribute("aria-labelledby") && svg.querySelector("title")?.textContent && svg.querySelector("desc")?.textContent;
    if (!told && svg.getAttribute("aria-hidden") !== "true") say("a drawing without a name", svg);
  }
  all("[aria-labelledby], [aria-describedby]").filter((element) => !named(element)).forEach((element) => say("named by nothing", element));
  all("a, summary, figcaption, caption, th").filter((element) => !element.textContent.trim() && element.tagName !== "TH").forEach((element) => say("no text", element));
  all("table").filter((table) => !table.caption || [...table.querySelectorAll("th")].some((head) => !head.scope)).forEach((table) => say("a table without caption or scopes", table));
  all('a[href^="#"]').filter((link) => !document.getElementById(link.getAttribute("href").slice(1))).forEach((link) => say("leads nowhere", link));

  // Text stands out from what is behind it: 4.5 to 1.
  const channels = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const luminance = (colour) => channels(colour).slice(0, 3).map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, place) => sum + c * [0.2126, 0.7152, 0.0722][place], 0);
  const opaque = (colour) => colour.startsWith("rgb") && (channels(colour)[3] ?? 1) === 1;
  const behind = (element) => {
    if (element instanceof SVGElement) {
      const box = element.getBBox(), x = box.x + box.width / 2, y = box.y + box.height / 2;
      const under = [...element.ownerSVGElement.querySelectorAll("rect")].filter((rect) => {
        const r = rect.getBBox();
        return rect.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING && r.x <= x && x <= r.x + r.width && r.y <= y && y <= r.y + r.height;
      });
      if (under.length) return getComputedStyle(under.at(-1)).fill;
    }
    for (let parent = element; parent; parent = parent.parentElement) {
      const colour = getComputedStyle(parent).backgroundColor;
      if (opaque(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  for (const element of all("body *")) {
    if (!seen(element) || inside(element, ".hidden, .skip, title, desc") || ![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    const style = getComputedStyle(element);
    const [low, high] = [luminance(element instanceof SVGElement ? style.fill : style.color), luminance(behind(element))].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) say(`contrast ${contrast.toFixed(2)}`, element);
  }
  return wrong;
})()
